#include "text/internal/hf_model.h"

#include <cmath>

#include "base/error.h"
#include "text/internal/bpe_model.h"
#include "text/internal/char_bpe.h"
#include "text/internal/unigram_words.h"
#include "text/internal/word_piece.h"

namespace espalier::text::internal {

namespace {

constexpr const char* kSupported = "BPE, Unigram, WordPiece, WordLevel";

// Old files have no type; the fields show it.
std::string model_type(const JsonPart& part) {
  if (part.has("type")) return part.type();
  if (part.has("merges")) return "BPE";
  if (part.has("vocab") && part.value().at("vocab").is_array()) return "Unigram";
  return part.has("continuing_subword_prefix") ? "WordPiece" : "WordLevel";
}

void take_vocabulary(std::vector<std::string> pieces, std::unordered_map<std::string, int32_t> vocabulary,
                     HfModel& model) {
  model.pieces = std::move(pieces);
  model.vocabulary = std::make_unique<std::unordered_map<std::string, int32_t>>(std::move(vocabulary));
  model.num_ids = static_cast<int64_t>(model.vocabulary->size());
}

void read_bpe(const JsonPart& part, bool takes_bytes, HfModel& model) {
  BpeModel bpe = read_bpe_model(part);
  take_vocabulary(bpe.pieces, bpe.vocabulary, model);
  if (takes_bytes && is_byte_level(bpe))
    model.byte_bpe = std::make_unique<ByteBpe>(byte_bpe_source(bpe));
  else
    model.words = std::make_unique<CharBpe>(std::move(bpe));
}

int32_t unknown_id(const JsonPart& part, const HfModel& model) {
  const std::string piece = part.text("unk_token");
  const auto found = model.vocabulary->find(piece);
  if (found == model.vocabulary->end()) part.fail("'unk_token' is '" + piece + "', which 'vocab' lacks");
  return found->second;
}

void read_words(const JsonPart& part, bool word_piece, HfModel& model) {
  BpeModel read;
  read_vocabulary(part, read);
  take_vocabulary(std::move(read.pieces), std::move(read.vocabulary), model);
  model.is_word_piece = word_piece;
  if (!word_piece) {
    model.words = std::make_unique<WordLevel>(model.pieces, unknown_id(part, model));
    return;
  }
  const WordPiece::Options options = {part.text("continuing_subword_prefix"), unknown_id(part, model),
                                      part.whole_number("max_input_chars_per_word")};
  model.words = std::make_unique<WordPiece>(model.pieces, options);
}

void read_unigram(const JsonPart& part, HfModel& model) {
  UnigramWords::Source source;
  source.where = part.where();
  source.byte_fallback = part.flag("byte_fallback", false);
  std::vector<std::string> pieces;
  std::unordered_map<std::string, int32_t> vocabulary;
  const nlohmann::json& list = part.list("vocab");
  for (size_t id = 0; id < list.size(); ++id) {
    const nlohmann::json& pair = list[id];
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_number() ||
        !std::isfinite(pair[1].get<double>())) {
      part.fail(concat("vocab[", id, "] is ", pair.dump().substr(0, 80), ", expected [piece, score]"));
    }
    pieces.push_back(pair[0].get<std::string>());
    vocabulary[pieces.back()] = static_cast<int32_t>(id);
    source.pieces.emplace_back(pieces.back(), pair[1].get<double>());
  }
  if (part.has("unk_id")) {
    const int64_t id = part.whole_number("unk_id");
    if (id >= static_cast<int64_t>(pieces.size())) {
      part.fail(concat("'unk_id' is ", id, ", but 'vocab' has ", pieces.size(), " pieces"));
    }
    source.unknown_id = static_cast<int32_t>(id);
  }
  take_vocabulary(std::move(pieces), std::move(vocabulary), model);
  model.num_ids = static_cast<int64_t>(model.pieces.size());
  model.words = std::make_unique<UnigramWords>(std::move(source), *model.vocabulary);
}

}  // namespace

HfModel read_hf_model(const JsonPart& part, bool takes_bytes) {
  HfModel model;
  const std::string type = model_type(part);
  if (type == "BPE")
    read_bpe(part, takes_bytes, model);
  else if (type == "Unigram")
    read_unigram(part, model);
  else if (type == "WordPiece" || type == "WordLevel")
    read_words(part, type == "WordPiece", model);
  else
    part.refuse_type(kSupported);
  return model;
}

}  // namespace espalier::text::internal
