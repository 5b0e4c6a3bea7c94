// Text to token ids and back.
//
//   const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(options);
//   std::vector<int32_t> ids;
//   tokenizer->encode(text, ids);           // appends
//   std::string text = tokenizer->decode(ids);
//
// A tokenizer is immutable; encode and decode may be called from any number of threads. Per-thread caches live in an
// Encoder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace espalier::text {

// Holds what one thread reuses between calls (buffers, a cache of words). Not shared between threads.
class Encoder {
 public:
  virtual ~Encoder() = default;
  // Appends the ids of `text`. Invalid bytes and lone surrogates count as U+FFFD.
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) = 0;
  // How many invalid bytes were replaced so far.
  int64_t num_replaced() const { return num_replaced_; }

 protected:
  int64_t num_replaced_ = 0;
};

// Ids that a model's configuration names, and those that BERT puts around and into a text.
struct NamedIds {
  std::optional<int32_t> bos, eos, pad;
  std::optional<int32_t> cls = {}, sep = {}, mask = {};
  std::optional<int32_t> text_end = {};  // where what ends a text is another id than eos, which ends a document
};

// A tokenizer.json, as Hugging Face's tokenizers and transformers read it.
struct TokenizerJson {
  std::string text;                // empty where there can be none of the same ids,
  std::string why_not;             // which this then explains
  std::vector<std::string> notes;  // where ids may differ nevertheless
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::unique_ptr<Encoder> new_encoder() const = 0;
  // Byte-level decoders put U+FFFD for bytes that form no character.
  virtual std::string decode(std::span<const int32_t> ids, bool skip_special_tokens = false) const = 0;

  // Number of ids (largest id + 1, added tokens included): what the embedding must cover.
  virtual int64_t vocab_size() const = 0;
  // The end-of-document id, if the tokenizer has one.
  virtual std::optional<int32_t> eod() const = 0;
  // The piece as it is in the vocabulary ("\u0120the"); empty for an unused id.
  virtual std::string id_to_piece(int32_t id) const = 0;
  virtual std::optional<int32_t> piece_to_id(std::string_view piece) const = 0;
  // What begins a text, ends one, and fills one up (the end is eod()); what begins, parts and masks one for BERT.
  virtual NamedIds named_ids() const { return {.bos = std::nullopt, .eos = eod(), .pad = std::nullopt}; }
  // The same tokenizer in Hugging Face's form. There, special tokens in a text are found; here, those of
  // most types are plain text.
  virtual TokenizerJson tokenizer_json() const = 0;
  // "GPT2BPETokenizer from vocab.json", for people.
  virtual std::string description() const = 0;
  // For people: what it does ("byte-level BPE; pieces of BLOOM's pattern").
  virtual std::string kind() const { return ""; }
  // The ids that decode() can skip, ascending.
  virtual std::vector<int32_t> special_ids() const { return {}; }
  // False where only some texts can be encoded (NullTokenizer: ids).
  virtual bool encodes_any_text() const { return true; }
  // The template that turns a conversation into a text, if one came with the tokenizer (Jinja; the one that
  // transformers calls "default" where there are several).
  virtual std::string chat_template() const { return ""; }
  // The files it was made from, to be copied next to a checkpoint: (name, absolute path).
  virtual std::vector<std::pair<std::string, std::string>> files() const = 0;

  std::vector<int32_t> encode(std::string_view text) const;
};

// The text that `ids` add after `context`, special tokens skipped. Alone they may give another: the first piece of a
// SentencePiece text loses its blank, NullTokenizer puts blanks between ids, a character may be spread over ids.
std::string decode_continuation(const Tokenizer& tokenizer, const std::vector<int32_t>& context,
                                const std::vector<int32_t>& ids);

// As Megatron's options name them.
struct TokenizerOptions {
  std::string type;          // one of tokenizer_types()
  std::string vocab_file;    // vocab.json of GPT2BPETokenizer, vocab.txt of BertWordPiece*
  std::string merge_file;    // merges.txt of GPT2BPETokenizer
  std::string name_or_path;  // PretrainedFromHF, HFTokenizer: tokenizer.json or the folder that holds it
  std::string model_file;    // a SentencePiece .model, the ranks of TikTokenizer; HFTokenizer takes it for name_or_path
  int64_t extra_ids = 0;     // <extra_id_0> ... to be added: BertWordPiece*, SentencePieceTokenizer, PretrainedFromHF
  std::optional<int64_t> vocab_size;                 // NullTokenizer: its ids but the last; TikTokenizer with JSON
  std::string tiktoken_pattern;                      // TikTokenizer: see tiktoken_tokenizer.h
  int64_t tiktoken_num_special_tokens = 1000;        // TikTokenizer with JSON
  std::vector<std::string> tiktoken_special_tokens;  // TikTokenizer
};

// What type may be, of Megatron-DeepSpeed (BigScience's and Argonne's) and of NVIDIA's Megatron-LM.
const std::vector<std::string>& tokenizer_types();

// What is missing, in one message each: "--tokenizer-type X needs --vocab-file (...)". For options that name files, and
// before any is opened.
void check_options(const TokenizerOptions& options, Problems& problems);

// The files that the options name, whether they exist or not; of a Hugging Face tokenizer the path given.
std::vector<std::string> files_of(const TokenizerOptions& options);

// The same tokenizer with its files in `folder`, under the names that Tokenizer::files() gives them.
TokenizerOptions moved_to(TokenizerOptions options, const std::filesystem::path& folder);

// Throws a UserError that names what is missing.
std::unique_ptr<Tokenizer> load_tokenizer(const TokenizerOptions& options);

// Whether a file of this name is a tokenizer, rather than what lies beside one (generation_config.json, ...).
bool is_tokenizer_file(const std::string& name);

// What is at `path`: a tokenizer.json, vocab.json with merges.txt next to it, vocab.txt (lower case unless
// tokenizer_config.json next to it says otherwise), a SentencePiece .model, ranks of tiktoken, or a folder that holds
// one of these; the first that exists, in this order.
std::unique_ptr<Tokenizer> open_tokenizer(const std::filesystem::path& path);

}  // namespace espalier::text
