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
  // The piece as it stands in the vocabulary ("\u0120the"); empty for an unused id.
  virtual std::string id_to_piece(int32_t id) const = 0;
  virtual std::optional<int32_t> piece_to_id(std::string_view piece) const = 0;
  // "GPT2BPETokenizer from vocab.json", for people.
  virtual std::string description() const = 0;
  // For people: what it does ("byte-level BPE; pieces of BLOOM's pattern").
  virtual std::string kind() const { return ""; }
  // The ids that decode() can skip, ascending.
  virtual std::vector<int32_t> special_ids() const { return {}; }
  // The files it was made from, to be copied beside a checkpoint: (name, absolute path).
  virtual std::vector<std::pair<std::string, std::string>> files() const = 0;

  std::vector<int32_t> encode(std::string_view text) const;
};

// As Megatron's options name them.
struct TokenizerOptions {
  std::string type;          // GPT2BPETokenizer | PretrainedFromHF
  std::string vocab_file;    // vocab.json of GPT2BPETokenizer
  std::string merge_file;    // merges.txt of GPT2BPETokenizer
  std::string name_or_path;  // PretrainedFromHF: tokenizer.json or the folder that holds it
};

// Throws a UserError that names what is missing.
std::unique_ptr<Tokenizer> load_tokenizer(const TokenizerOptions& options);

// What stands at `path`: a tokenizer.json, a vocab.json with merges.txt beside it, or a folder with the first or, where
// that is missing, the second.
std::unique_ptr<Tokenizer> open_tokenizer(const std::filesystem::path& path);

}  // namespace espalier::text
