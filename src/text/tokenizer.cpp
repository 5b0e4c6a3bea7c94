#include "text/tokenizer.h"

#include <algorithm>
#include <iterator>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "text/bert_tokenizer.h"
#include "text/gpt2_tokenizer.h"
#include "text/hf_tokenizer.h"
#include "text/internal/sentencepiece_model.h"
#include "text/internal/tokenizer_file.h"
#include "text/null_tokenizer.h"
#include "text/sentencepiece_tokenizer.h"
#include "text/tiktoken_tokenizer.h"

namespace espalier::text {

namespace {

namespace fs = std::filesystem;

// A type and what it is made from.
struct TokenizerType {
  const char* name;
  enum class Family { kBert, kGpt2, kHuggingFace, kSentencePiece, kTiktoken, kNull } family;
};
using Family = TokenizerType::Family;

constexpr TokenizerType kTypes[] = {
    {"GPT2BPETokenizer", Family::kGpt2},
    {"PretrainedFromHF", Family::kHuggingFace},
    {"HFTokenizer", Family::kHuggingFace},
    {"HuggingFaceTokenizer", Family::kHuggingFace},
    {"GPTSentencePieceTokenizer", Family::kSentencePiece},
    {"SentencePieceTokenizer", Family::kSentencePiece},
    {"Llama2Tokenizer", Family::kSentencePiece},
    {"TikTokenizer", Family::kTiktoken},
    {"BertWordPieceLowerCase", Family::kBert},
    {"BertWordPieceCase", Family::kBert},
    {"NullTokenizer", Family::kNull},
};

const TokenizerType* find_type(const std::string& name) {
  const auto found =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& type) { return type.name == name; });
  return found == std::end(kTypes) ? nullptr : found;
}

std::string hugging_face_path(const TokenizerOptions& options) {
  return options.name_or_path.empty() ? options.model_file : options.name_or_path;
}

SentencePieceWrapper wrapper_of(const std::string& type) {
  if (type == "Llama2Tokenizer") return SentencePieceWrapper::kLlama2;
  return type == "SentencePieceTokenizer" ? SentencePieceWrapper::kMegatron : SentencePieceWrapper::kGpt;
}

bool takes_extra_ids(const std::string& type) {
  return type == "SentencePieceTokenizer" || type.rfind("BertWordPiece", 0) == 0 || type == "PretrainedFromHF";
}

bool bert_is_lower_case(const fs::path& vocab_file) {
  const fs::path config = vocab_file.parent_path() / "tokenizer_config.json";
  if (!fs::exists(config)) return true;
  const auto read = nlohmann::json::parse(internal::read_tokenizer_file(config), nullptr, /*allow_exceptions=*/false);
  const auto found = read.is_object() ? read.find("do_lower_case") : read.end();
  return !read.is_object() || found == read.end() || !found->is_boolean() || found->get<bool>();
}

// Each of them is a tokenizer, or with merges.txt; what lies beside them (generation_config.json, ...) is none.
constexpr const char* kTokenizerFiles[] = {"tokenizer.json", "vocab.json", "vocab.txt", "tokenizer.model",
                                           "vocab.tiktoken"};

// What a folder holds, or the path itself.
fs::path tokenizer_file(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return path;
  for (const char* name : kTokenizerFiles)
    if (fs::exists(path / name)) return path / name;
  return path;  // whose reader says what is missing
}

}  // namespace

bool is_tokenizer_file(const std::string& name) {
  return std::find(std::begin(kTokenizerFiles), std::end(kTokenizerFiles), name) != std::end(kTokenizerFiles);
}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  new_encoder()->encode(text, ids);
  return ids;
}

std::string decode_continuation(const Tokenizer& tokenizer, const std::vector<int32_t>& context,
                                const std::vector<int32_t>& ids) {
  std::vector<int32_t> whole = context;
  whole.insert(whole.end(), ids.begin(), ids.end());
  const std::string before = tokenizer.decode(context, /*skip_special_tokens=*/true);
  const std::string text = tokenizer.decode(whole, /*skip_special_tokens=*/true);
  // A character that was cut off at the end of the context is whole now.
  return text.starts_with(before) ? text.substr(before.size()) : tokenizer.decode(ids, /*skip_special_tokens=*/true);
}

const std::vector<std::string>& tokenizer_types() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const TokenizerType& type : kTypes) list.push_back(type.name);
    return list;
  }();
  return names;
}

void check_options(const TokenizerOptions& options, Problems& problems) {
  const TokenizerType* type = find_type(options.type);
  if (type == nullptr) {
    problems.add("--tokenizer-type ", options.type.empty() ? "is missing" : "'" + options.type + "' is not known",
                 "; use ", join(tokenizer_types(), ", "));
    return;
  }
  const auto need = [&](bool given, const char* option) {
    if (!given) problems.add("--tokenizer-type ", options.type, " needs ", option);
  };
  switch (type->family) {
    case Family::kBert: need(!options.vocab_file.empty(), "--vocab-file (vocab.txt)"); break;
    case Family::kGpt2:
      need(!options.vocab_file.empty(), "--vocab-file (vocab.json)");
      need(!options.merge_file.empty(), "--merge-file (merges.txt)");
      break;
    case Family::kHuggingFace:
      if (options.type == "PretrainedFromHF")
        need(!options.name_or_path.empty(), "--tokenizer-name-or-path (tokenizer.json or its folder)");
      else
        need(!hugging_face_path(options).empty(), "--tokenizer-model (tokenizer.json or its folder)");
      break;
    case Family::kSentencePiece: need(!options.model_file.empty(), "--tokenizer-model (a .model file)"); break;
    case Family::kTiktoken: need(!options.model_file.empty(), "--tokenizer-model (ranks of tiktoken)"); break;
    case Family::kNull: need(options.vocab_size.has_value(), "--vocab-size"); break;
  }
  if (options.extra_ids < 0) problems.add("--vocab-extra-ids ", options.extra_ids, ": use 0 or more");
}

std::vector<std::string> files_of(const TokenizerOptions& options) {
  const TokenizerType* type = find_type(options.type);
  if (type == nullptr) return {};
  switch (type->family) {
    case Family::kBert: return {options.vocab_file};
    case Family::kGpt2: return {options.vocab_file, options.merge_file};
    case Family::kHuggingFace: return {hugging_face_path(options)};
    case Family::kSentencePiece:
    case Family::kTiktoken: return {options.model_file};
    case Family::kNull: return {};
  }
  return {};
}

TokenizerOptions moved_to(TokenizerOptions options, const fs::path& folder) {
  const TokenizerType* type = find_type(options.type);
  if (type == nullptr) return options;
  switch (type->family) {
    case Family::kBert: options.vocab_file = folder / "vocab.txt"; break;
    case Family::kGpt2:
      options.vocab_file = folder / "vocab.json";
      options.merge_file = folder / "merges.txt";
      break;
    case Family::kHuggingFace: options.name_or_path = folder; break;
    case Family::kSentencePiece: options.model_file = folder / "tokenizer.model"; break;
    case Family::kTiktoken:
      if (options.tiktoken_pattern.empty()) options.tiktoken_pattern = fs::path(options.model_file).stem();
      options.model_file = folder / "vocab.tiktoken";
      break;
    case Family::kNull: break;
  }
  return options;
}

std::unique_ptr<Tokenizer> load_tokenizer(const TokenizerOptions& options) {
  Problems problems;
  check_options(options, problems);
  problems.raise();
  if (options.extra_ids > 0 && !takes_extra_ids(options.type)) {
    log_warning("--vocab-extra-ids ", options.extra_ids, " adds nothing to ", options.type, ", as in Megatron");
  }
  switch (find_type(options.type)->family) {
    case Family::kBert:
      return load_bert_tokenizer(options.vocab_file, options.type == "BertWordPieceLowerCase", options.extra_ids);
    case Family::kGpt2: return load_gpt2_tokenizer(options.vocab_file, options.merge_file);
    case Family::kHuggingFace:
      return load_hf_tokenizer(hugging_face_path(options), options.type == "PretrainedFromHF" ? options.extra_ids : 0);
    case Family::kSentencePiece:
      return load_sentencepiece_tokenizer(options.model_file, wrapper_of(options.type), options.extra_ids);
    case Family::kTiktoken: {
      const TiktokenOptions from = {options.model_file, options.tiktoken_pattern, options.tiktoken_special_tokens,
                                    options.tiktoken_num_special_tokens, options.vocab_size};
      return load_tiktoken_tokenizer(from);
    }
    case Family::kNull: return make_null_tokenizer(*options.vocab_size);
  }
  ESPALIER_CHECK(false, "unknown family of tokenizers");
  return nullptr;
}

std::unique_ptr<Tokenizer> open_tokenizer(const fs::path& path) {
  const fs::path file = tokenizer_file(path);
  const std::string name = file.filename(), extension = file.extension();
  if (name == "vocab.json") return load_gpt2_tokenizer(file, file.parent_path() / "merges.txt");
  if (extension == ".txt") return load_bert_tokenizer(file, bert_is_lower_case(file));
  if (extension == ".tiktoken") return load_tiktoken_tokenizer({.file = file});
  if (extension == ".model") {
    // Llama 3 calls its ranks tokenizer.model as well.
    if (internal::looks_like_sentencepiece_model(internal::read_tokenizer_file(file)))
      return load_sentencepiece_tokenizer(file, SentencePieceWrapper::kGpt);
    return load_tiktoken_tokenizer({.file = file});
  }
  return load_hf_tokenizer(file);
}

}  // namespace espalier::text
