#include "apps/tokenizer/options.h"

#include "base/format.h"
#include "base/hash.h"
#include "text/tokenizer_fingerprint.h"

namespace espalier {

Option& add_tokenizer_options(OptionTable& table, text::TokenizerOptions& options) {
  Option& type = table.add("--tokenizer-type", options.type, "as Megatron names them").choices(text::tokenizer_types());
  table.add("--vocab-file", options.vocab_file, "vocab.json of GPT2BPETokenizer, vocab.txt of BertWordPiece*")
      .alias("--vocab")  // as scripts abbreviate it, from before other options began so
      .value_name("FILE");
  table.add("--merge-file", options.merge_file, "merges.txt of GPT2BPETokenizer").value_name("FILE");
  table.add("--tokenizer-name-or-path", options.name_or_path, "tokenizer.json of PretrainedFromHF, or its folder")
      .value_name("PATH");
  table
      .add("--tokenizer-model", options.model_file,
           "a SentencePiece .model, the ranks of TikTokenizer, or the tokenizer.json of HFTokenizer")
      .value_name("PATH");
  table.add("--vocab-extra-ids", options.extra_ids, "tokens <extra_id_0> ... to add to the vocabulary").minimum(0);
  if (table.find("--vocab-size") == nullptr) {  // data check has one of its own
    table.add("--vocab-size", options.vocab_size, "of NullTokenizer, and of TikTokenizer with JSON").minimum(1);
  }
  table.add("--tiktoken-pattern", options.tiktoken_pattern, "a name such as cl100k_base, or a regular expression")
      .value_name("NAME");
  table
      .add("--tiktoken-num-special-tokens", options.tiktoken_num_special_tokens,
           "ids before the ranks of TikTokenizer with JSON")
      .minimum(3);
  table.add("--tiktoken-special-tokens", options.tiktoken_special_tokens, "special tokens of TikTokenizer")
      .alias("--tokenizer-special-tokens")
      .value_name("TOKEN");
  table.add_without_effect("--trust-remote-code", OptionTable::Takes::kFlag, "no code comes with a tokenizer here");
  return type;
}

void explain_unexpected_words(Problems& problems, const std::string& what_works) {
  for (const std::string& message : problems.messages()) {
    if (!message.starts_with("unexpected word ") || message.find(": write --") != std::string::npos) continue;
    problems.add(what_works);
    return;
  }
}

std::unique_ptr<text::Tokenizer> load_tokenizer(const text::TokenizerOptions& options, Problems& problems,
                                                ExitCode* code) {
  try {
    return text::load_tokenizer(options);
  } catch (const UserError& error) {
    if (code != nullptr) *code = error.code();
    // Several problems come as one text, one to a line.
    const std::vector<std::string> lines = split(error.what(), '\n');
    if (lines.size() == 1) problems.add(lines.front());
    for (size_t line = 1; line < lines.size(); ++line) problems.add(lines[line].substr(lines[line].find("- ") + 2));
    return nullptr;
  }
}

std::vector<std::string> words_of(const text::TokenizerOptions& options) {
  std::vector<std::string> words = {"--tokenizer-type", options.type};
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {name, value});
  };
  const auto add_path = [&](const char* name, const std::string& path) {
    if (!path.empty()) add(name, std::filesystem::absolute(path).lexically_normal().string());
  };
  add_path("--vocab-file", options.vocab_file);
  add_path("--merge-file", options.merge_file);
  add_path("--tokenizer-name-or-path", options.name_or_path);
  add_path("--tokenizer-model", options.model_file);
  if (options.extra_ids > 0) add("--vocab-extra-ids", std::to_string(options.extra_ids));
  if (options.vocab_size) add("--vocab-size", std::to_string(*options.vocab_size));
  add("--tiktoken-pattern", options.tiktoken_pattern);
  if (options.tiktoken_num_special_tokens != text::TokenizerOptions{}.tiktoken_num_special_tokens)
    add("--tiktoken-num-special-tokens", std::to_string(options.tiktoken_num_special_tokens));
  if (!options.tiktoken_special_tokens.empty()) {
    words.push_back("--tiktoken-special-tokens");
    words.insert(words.end(), options.tiktoken_special_tokens.begin(), options.tiktoken_special_tokens.end());
  }
  return words;
}

namespace {

void move_to(const std::filesystem::path& folder, std::string& path) {
  if (!path.empty()) path = (folder / std::filesystem::path(path).filename()).string();
}

}  // namespace

std::unique_ptr<text::Tokenizer> find_tokenizer(const std::vector<std::string>& words, const std::string& fingerprint,
                                                const std::filesystem::path& folder, std::string& reason) {
  text::TokenizerOptions options;
  OptionTable table("metadata", "");
  add_tokenizer_options(table, options);
  Problems problems;
  if (!table.parse(words, problems) || !problems.empty()) {
    reason = problems.empty() ? "its options are not known" : problems.messages().front();
    return nullptr;
  }
  std::unique_ptr<text::Tokenizer> tokenizer = load_tokenizer(options, problems);
  if (!tokenizer) {
    for (std::string* path : {&options.vocab_file, &options.merge_file, &options.name_or_path, &options.model_file})
      move_to(folder, *path);
    Problems ignored;  // the first reason is the one to report
    tokenizer = load_tokenizer(options, ignored);
  }
  if (!tokenizer) {
    reason = problems.messages().front();
    return nullptr;
  }
  const std::string found = hex64(text::fingerprint(*tokenizer));
  if (found == fingerprint) return tokenizer;
  reason = concat(tokenizer->description(), " has the fingerprint ", found, " now, and had ", fingerprint);
  return nullptr;
}

}  // namespace espalier
