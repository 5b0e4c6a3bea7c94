#include "text/sentencepiece_pieces.h"

#include "text/internal/sentencepiece_encoder.h"

namespace espalier::text {

using namespace internal;

struct SentencePieceCutter::Parts {
  explicit Parts(const std::filesystem::path& file) : processor(read_sentencepiece_model(file), file.string()) {}
  SentencePieceProcessor processor;
};

SentencePieceCutter::SentencePieceCutter(const std::filesystem::path& model_file)
    : parts_(std::make_unique<Parts>(model_file)) {}
SentencePieceCutter::~SentencePieceCutter() = default;

std::vector<std::string> SentencePieceCutter::cut(std::string_view text) const {
  const SentencePieceProcessor& processor = parts_->processor;
  const SentencePieceModel& model = processor.model();
  std::string normalized;
  processor.normalizer().apply(text, normalized);
  std::vector<std::string> pieces;
  bool after_unknown = false;
  const auto add = [&](std::string_view word, int32_t id, size_t begin, size_t end) {
    const std::string_view surface = word.substr(begin, end - begin);
    const bool is_unknown = id < 0 || id == model.unknown_id;
    if (is_unknown && model.byte_fallback) {
      for (const char byte : surface)
        pieces.push_back(model.pieces[static_cast<size_t>(model.byte_ids[static_cast<uint8_t>(byte)])].text);
    } else if (is_unknown && after_unknown) {
      pieces.back() += surface;
    } else {
      pieces.emplace_back(surface);
    }
    after_unknown = is_unknown && !model.byte_fallback;
  };
  SentencePieceProcessor::Scratch scratch;
  std::vector<int32_t> ids;  // not asked for
  double total = 0;
  for (std::string_view left = normalized; !left.empty();) {
    const std::string_view word = left.substr(0, processor.word_end(left));
    ids.clear();
    processor.cut_word(word, total, scratch, ids);
    if (processor.has_sums())
      for (const Unigram::Node& node : scratch.unigram_nodes) add(word, node.id, node.begin, node.end);
    else
      for (const SentencePieceBpe::Node& node : scratch.bpe_nodes) add(word, node.id, node.begin, node.end);
    left.remove_prefix(word.size());
  }
  return pieces;
}

}  // namespace espalier::text
