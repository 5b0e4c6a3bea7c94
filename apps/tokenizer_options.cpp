#include "tokenizer_options.h"

#include "base/format.h"

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

std::unique_ptr<text::Tokenizer> load_tokenizer(const text::TokenizerOptions& options, Problems& problems) {
  try {
    return text::load_tokenizer(options);
  } catch (const UserError& error) {
    // Several problems come as one text, one to a line.
    const std::vector<std::string> lines = split(error.what(), '\n');
    if (lines.size() == 1) problems.add(lines.front());
    for (size_t line = 1; line < lines.size(); ++line) problems.add(lines[line].substr(lines[line].find("- ") + 2));
    return nullptr;
  }
}

}  // namespace espalier
