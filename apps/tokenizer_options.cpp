#include "tokenizer_options.h"

#include "base/format.h"

namespace espalier {

Option& add_tokenizer_options(OptionTable& table, text::TokenizerOptions& options) {
  const std::string not_yet =
      "documents and sentences for BERT are not made here; use GPT2BPETokenizer or PretrainedFromHF";
  Option& type = table.add("--tokenizer-type", options.type, "GPT-2's two files, or a tokenizer.json of Hugging Face")
                     .choices({"GPT2BPETokenizer", "PretrainedFromHF"})
                     .refuse_value("BertWordPieceLowerCase", not_yet)
                     .refuse_value("BertWordPieceCase", not_yet);
  table.add("--vocab-file", options.vocab_file, "vocab.json of GPT2BPETokenizer").value_name("FILE");
  table.add("--merge-file", options.merge_file, "merges.txt of GPT2BPETokenizer").value_name("FILE");
  table.add("--tokenizer-name-or-path", options.name_or_path, "tokenizer.json of PretrainedFromHF, or its folder")
      .value_name("PATH");
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
