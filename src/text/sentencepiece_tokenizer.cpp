#include "text/sentencepiece_tokenizer.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "text/internal/sentencepiece_encoder.h"
#include "text/internal/sentencepiece_json.h"
#include "text/utf8.h"

namespace espalier::text {

namespace {

using namespace internal;

struct SpecialToken {
  std::string text;
  int32_t id;
};

// The tokens that SentencePieceTokenizer takes out of a text before the model sees it, in the order in which they were
// added: of two at the same place the earlier one counts.
class SpecialTokens {
 public:
  SpecialTokens() = default;
  SpecialTokens(const SentencePieceProcessor& processor, int64_t extra_ids) {
    const SentencePieceModel& model = processor.model();
    for (size_t id = 0; id < model.pieces.size(); ++id) vocabulary_[model.pieces[id].text] = static_cast<int32_t>(id);
    for (const char* text : {"<CLS>", "<SEP>", "<EOD>", "<MASK>"}) add(text);
    const auto add_named = [&](const std::string& piece, const char* otherwise) {
      add(processor.control_id(piece) ? piece : otherwise);
    };
    add_named(model.pad_piece, "<PAD>");
    add_named(model.bos_piece, "<BOS>");
    add_named(model.eos_piece, "<EOS>");
    for (int64_t i = 0; i < extra_ids; ++i) add("<extra_id_" + std::to_string(i) + ">");
  }

  const std::vector<SpecialToken>& list() const { return list_; }
  int64_t vocab_size() const { return static_cast<int64_t>(vocabulary_.size()); }
  std::optional<int32_t> find(const std::string& text) const {
    const auto found = vocabulary_.find(text);
    return found == vocabulary_.end() ? std::nullopt : std::optional(found->second);
  }
  const SpecialToken* by_id(int32_t id) const {
    const auto found =
        std::find_if(list_.begin(), list_.end(), [id](const SpecialToken& token) { return token.id == id; });
    return found == list_.end() ? nullptr : &*found;
  }

 private:
  void add(const std::string& text) {
    const auto known = vocabulary_.try_emplace(text, static_cast<int32_t>(vocabulary_.size())).first;
    if (by_id(known->second) == nullptr) list_.push_back({text, known->second});
  }

  std::unordered_map<std::string, int32_t> vocabulary_;  // a text that two pieces share is the later one's
  std::vector<SpecialToken> list_;
};

struct SentencePieceParts {
  SentencePieceParts(SentencePieceModel model, const std::string& where, SentencePieceWrapper used, int64_t extra_ids)
      : processor(std::move(model), where), wrapper(used) {
    if (wrapper == SentencePieceWrapper::kMegatron) special = SpecialTokens(processor, extra_ids);
  }
  SentencePieceProcessor processor;
  SentencePieceWrapper wrapper;
  SpecialTokens special;
};

class ModelEncoder final : public Encoder {
 public:
  explicit ModelEncoder(const SentencePieceParts& parts) : parts_(parts), encoder_(parts.processor) {
    if (parts.wrapper == SentencePieceWrapper::kLlama2) {
      first_ = parts.processor.control_id(parts.processor.model().bos_piece);
    }
  }

  void encode(std::string_view text, std::vector<int32_t>& ids) override {
    const std::string_view valid = repair_utf8(text, repaired_, num_replaced_);
    if (first_) ids.push_back(*first_);
    if (parts_.special.list().empty()) return encoder_.encode(valid, ids);
    encode_around_special(valid, ids);
  }

 private:
  void encode_around_special(std::string_view text, std::vector<int32_t>& ids) {
    const std::vector<SpecialToken>& tokens = parts_.special.list();
    next_.assign(tokens.size(), 0);
    for (size_t i = 0; i < tokens.size(); ++i) next_[i] = text.find(tokens[i].text);
    size_t done = 0;
    while (true) {
      const auto nearest = std::min_element(next_.begin(), next_.end());
      if (*nearest == std::string_view::npos) break;
      const SpecialToken& token = tokens[static_cast<size_t>(nearest - next_.begin())];
      encoder_.encode(text.substr(done, *nearest - done), ids);
      ids.push_back(token.id);
      done = *nearest + token.text.size();
      for (size_t i = 0; i < tokens.size(); ++i) {
        if (next_[i] < done) next_[i] = text.find(tokens[i].text, done);
      }
    }
    encoder_.encode(text.substr(done), ids);
  }

  const SentencePieceParts& parts_;
  SentencePieceEncoder encoder_;
  std::optional<int32_t> first_;
  std::string repaired_;
  std::vector<size_t> next_;  // where each special token comes next
};

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(std::filesystem::path file, SentencePieceModel model, SentencePieceWrapper wrapper,
                         int64_t extra_ids)
      : file_(std::move(file)), parts_(std::move(model), file_.string(), wrapper, extra_ids) {
    const SentencePieceModel& read = parts_.processor.model();
    if (wrapper == SentencePieceWrapper::kLlama2 && !parts_.processor.control_id(read.bos_piece)) {
      throw UserError(concat("'", file_.string(), "': Llama2Tokenizer begins every text with '", read.bos_piece,
                             "', which is not a control piece of the model; use GPTSentencePieceTokenizer"),
                      ExitCode::kBadData);
    }
  }

  std::unique_ptr<Encoder> new_encoder() const override { return std::make_unique<ModelEncoder>(parts_); }

  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const override {
    if (parts_.special.list().empty()) return parts_.processor.decode(ids);
    std::string text;
    std::vector<int32_t> between;
    for (const int32_t id : ids) {
      const SpecialToken* token = parts_.special.by_id(id);
      if (token == nullptr) {
        between.push_back(id);
      } else if (!skip_special_tokens) {
        text += parts_.processor.decode(between) + " " + token->text + " ";
        between.clear();
      }
    }
    return text + parts_.processor.decode(between);
  }

  int64_t vocab_size() const override {
    const auto pieces = static_cast<int64_t>(parts_.processor.model().pieces.size());
    if (parts_.wrapper != SentencePieceWrapper::kMegatron) return pieces;
    return std::max(pieces, parts_.special.vocab_size());
  }
  std::optional<int32_t> eod() const override {
    if (parts_.wrapper == SentencePieceWrapper::kMegatron) return parts_.special.find("<EOD>");
    return parts_.processor.control_id(parts_.processor.model().eos_piece);
  }
  std::string id_to_piece(int32_t id) const override {
    const std::vector<SentencePieceModel::Piece>& pieces = parts_.processor.model().pieces;
    if (id >= 0 && static_cast<size_t>(id) < pieces.size()) return pieces[static_cast<size_t>(id)].text;
    const SpecialToken* token = parts_.special.by_id(id);
    return token == nullptr ? "" : token->text;
  }
  std::optional<int32_t> piece_to_id(std::string_view piece) const override {
    if (parts_.wrapper == SentencePieceWrapper::kMegatron) return parts_.special.find(std::string(piece));
    return parts_.processor.find(piece);
  }
  NamedIds named_ids() const override {
    const SentencePieceModel& model = parts_.processor.model();
    const auto id_of = [&](const std::string& piece, const char* added) -> std::optional<int32_t> {
      if (const auto id = parts_.processor.control_id(piece)) return id;
      return parts_.special.find(added);
    };
    return {.bos = id_of(model.bos_piece, "<BOS>"),
            .eos = eod(),
            .pad = id_of(model.pad_piece, "<PAD>"),
            .cls = parts_.special.find("<CLS>"),
            .sep = parts_.special.find("<SEP>"),
            .mask = parts_.special.find("<MASK>"),
            .text_end = id_of(model.eos_piece, "<EOS>")};
  }
  TokenizerJson tokenizer_json() const override {
    const SentencePieceModel& model = parts_.processor.model();
    SentencePieceUse use;
    if (parts_.wrapper == SentencePieceWrapper::kLlama2) use.first = parts_.processor.control_id(model.bos_piece);
    for (const SpecialToken& token : parts_.special.list()) use.special.emplace_back(token.id, token.text);
    return sentencepiece_json(model, use);
  }
  std::string description() const override {
    static constexpr const char* kNames[] = {"GPTSentencePieceTokenizer", "Llama2Tokenizer", "SentencePieceTokenizer"};
    return std::string(kNames[static_cast<size_t>(parts_.wrapper)]) + " from " + file_.string();
  }
  std::string kind() const override {
    static constexpr const char* kNames[] = {"", "unigram", "BPE", "words", "characters"};
    const SentencePieceModel& model = parts_.processor.model();
    std::string text = std::string("SentencePiece, ") + kNames[static_cast<size_t>(model.kind)];
    if (!model.normalizer.chars_map.empty()) text += "; normalized";
    return text + (model.byte_fallback ? "; unknown characters as bytes" : "");
  }
  std::vector<int32_t> special_ids() const override {
    std::vector<int32_t> ids;
    for (const SpecialToken& token : parts_.special.list()) ids.push_back(token.id);
    const std::vector<SentencePieceModel::Piece>& pieces = parts_.processor.model().pieces;
    for (size_t id = 0; id < pieces.size(); ++id) {
      if (pieces[id].type == PieceType::kControl) ids.push_back(static_cast<int32_t>(id));
    }
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    return ids;
  }
  std::vector<std::pair<std::string, std::string>> files() const override {
    return {{"tokenizer.model", std::filesystem::absolute(file_).string()}};
  }

 private:
  std::filesystem::path file_;
  SentencePieceParts parts_;
};

}  // namespace

std::unique_ptr<Tokenizer> load_sentencepiece_tokenizer(const std::filesystem::path& model_file,
                                                        SentencePieceWrapper wrapper, int64_t extra_ids) {
  return std::make_unique<SentencePieceTokenizer>(model_file, read_sentencepiece_model(model_file), wrapper, extra_ids);
}

}  // namespace espalier::text
