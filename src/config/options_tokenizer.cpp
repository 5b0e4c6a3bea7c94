// The options that name a run's tokenizer: Megatron-DeepSpeed's and those that NVIDIA's Megatron-LM added.
#include "config/internal/rows.h"

namespace espalier::config::internal {

void add_tokenizer(OptionTable& table, TokenizerConfig& tokenizer) {
  table.add("--tokenizer-type", tokenizer.type, "GPT-2's files, a tokenizer.json, a .model, ...")
      .common()
      .choices({"GPT2BPETokenizer", "PretrainedFromHF", "HFTokenizer", "HuggingFaceTokenizer",
                "GPTSentencePieceTokenizer", "SentencePieceTokenizer", "Llama2Tokenizer", "TikTokenizer",
                "BertWordPieceLowerCase", "BertWordPieceCase", "NullTokenizer"});
  table.add("--vocab-file", tokenizer.vocab_file, "vocab.json of GPT2BPETokenizer, vocab.txt of BertWordPiece*")
      .value_name("FILE")
      .common()
      .on_resume(ResumeRule::kFree);
  table.add("--merge-file", tokenizer.merge_file, "merges.txt of GPT2BPETokenizer")
      .value_name("FILE")
      .common()
      .on_resume(ResumeRule::kFree);
  table.add("--tokenizer-name-or-path", tokenizer.name_or_path, "tokenizer.json of PretrainedFromHF, or its folder")
      .value_name("PATH")
      .common()
      .on_resume(ResumeRule::kFree);
  table
      .add("--tokenizer-model", tokenizer.model_file,
           "a SentencePiece .model, the ranks of TikTokenizer, or the tokenizer.json of HFTokenizer")
      .value_name("PATH")
      .common()
      .on_resume(ResumeRule::kFree);
  table.add("--vocab-extra-ids", tokenizer.extra_ids, "tokens <extra_id_0> ... to add to the vocabulary").minimum(0);
  table.add("--vocab-size", tokenizer.vocab_size, "of NullTokenizer, and of TikTokenizer with JSON").minimum(1);
  table.add("--tiktoken-pattern", tokenizer.tiktoken_pattern, "a name such as cl100k_base, or a regular expression")
      .value_name("NAME");
  table
      .add("--tiktoken-num-special-tokens", tokenizer.tiktoken_num_special_tokens,
           "ids before the ranks of TikTokenizer with JSON")
      .minimum(3);
  table.add("--tiktoken-special-tokens", tokenizer.tiktoken_special_tokens, "special tokens of TikTokenizer")
      .alias("--tokenizer-special-tokens")
      .value_name("TOKEN");
}

}  // namespace espalier::config::internal
