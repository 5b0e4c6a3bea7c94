// Token files: `<prefix>.bin` holds the ids of all sequences one after another, `<prefix>.idx` where each begins.
//
// These are Megatron's mmap files, read and written as they are (docs/data-path.md has the layout). A document is one
// or more sequences; text for GPT has one sequence per document, and GPT's sample order counts sequences.
//
//   const TokenStore store("data/wiki_text_document");
//   std::vector<int64_t> ids(store.size(7));
//   store.read(/*sequence=*/7, /*offset=*/0, store.size(7), ids.data());
//
// Opening costs two mmaps and a few comparisons, however many tokens there are; check_all() walks the index. A file
// that is truncated, oversized or contradicts itself is refused with the field, the expected and the found value
// (UserError, exit code 65).
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "data/document_sizes.h"

namespace espalier::data {

// The value is the file's code for the type. Other codes exist and never hold tokens.
enum class TokenType : uint8_t { kInt32 = 4, kUint16 = 8 };

inline int64_t bytes_per_token(TokenType type) { return type == TokenType::kUint16 ? 2 : 4; }
inline const char* name_of(TokenType type) { return type == TokenType::kUint16 ? "uint16" : "int32"; }

// Megatron's rule: uint16 below 65,500 ids (unpadded), else int32.
TokenType token_type_for(int64_t vocab_size);

// Immutable; any number of threads may read.
class TokenStore {
 public:
  explicit TokenStore(const std::string& prefix);

  const std::string& prefix() const { return prefix_; }
  TokenType type() const { return type_; }
  int64_t num_sequences() const { return num_sequences_; }
  int64_t num_documents() const { return num_document_marks_ - 1; }
  int64_t num_tokens() const { return static_cast<int64_t>(tokens_.size()) / bytes_per_token(type_); }

  // Tokens of one sequence. An int32 in the file; inline, because index builders call it for every sequence.
  int64_t size(int64_t sequence) const { return load<int32_t>(sizes_, sequence); }
  // All of them, for index builders; the store must outlive the view.
  DocumentSizes sizes() const { return {sizes_, num_sequences_}; }
  // Sequences first_sequence(d) .. first_sequence(d + 1) - 1 are document d; d = num_documents() gives the end.
  int64_t first_sequence(int64_t document) const { return load<int64_t>(document_marks_, document); }

  // Copies `length` ids from `offset` on. The range must lie inside the sequence.
  void read(int64_t sequence, int64_t offset, int64_t length, int64_t* ids) const;
  void read(int64_t sequence, int64_t offset, int64_t length, int32_t* ids) const;

  // One pass over the index (not the tokens): every size, start and document mark agrees with the others.
  void check_all() const;

  // The raw parts, for copying a store whole.
  std::span<const uint8_t> token_bytes() const { return {tokens_.data(), tokens_.size()}; }

 private:
  // The arrays begin at byte 34, aligned for nothing.
  template <class Value>
  static Value load(const uint8_t* array, int64_t index) {
    Value value;
    std::memcpy(&value, array + index * static_cast<int64_t>(sizeof(Value)), sizeof(Value));
    return value;
  }
  void read_header();
  void check_ends() const;
  int64_t start_bytes(int64_t sequence) const { return load<int64_t>(starts_, sequence); }
  const uint8_t* range(int64_t sequence, int64_t offset, int64_t length) const;
  [[noreturn]] void refuse_index(const std::string& field, const std::string& expected, const std::string& found,
                                 const std::string& advice = "") const;

  std::string prefix_;
  MappedFile index_, tokens_;
  TokenType type_ = TokenType::kInt32;
  int64_t num_sequences_ = 0, num_document_marks_ = 0;
  const uint8_t* sizes_ = nullptr;           // int32 [num_sequences]
  const uint8_t* starts_ = nullptr;          // int64 [num_sequences], byte offsets into .bin
  const uint8_t* document_marks_ = nullptr;  // int64 [num_documents + 1]
};

// Writes a pair of token files in one pass; memory does not grow with what is written.
//
//   TokenStoreWriter writer("data/wiki_text_document", token_type_for(tokenizer.vocab_size()));
//   writer.add_sequence(ids);
//   writer.end_document();
//   writer.finish();
//
// Until finish() everything lies under `<prefix>.*.tmp`, and a pair of that prefix that exists stays as it is. A
// process killed at any moment leaves either the old pair, the new pair, or no .idx. Without finish() the temporary
// files are removed.
class TokenStoreWriter {
 public:
  TokenStoreWriter(const std::string& prefix, TokenType type);
  ~TokenStoreWriter();
  TokenStoreWriter(const TokenStoreWriter&) = delete;
  TokenStoreWriter& operator=(const TokenStoreWriter&) = delete;

  // Ids must fit the type: one that does not is a bug of the tokenizer.
  void add_sequence(std::span<const int32_t> ids);
  // Ends the document of the sequences added since the last call.
  void end_document();
  // Appends all of another store; its type must be the same.
  void append(const TokenStore& other);
  void finish();

  int64_t num_sequences() const { return num_sequences_; }
  int64_t num_documents() const { return num_documents_; }
  int64_t num_tokens() const { return num_tokens_; }

 private:
  // Collects small writes.
  class Buffered;

  void add_size(int64_t num_tokens);
  void write_starts();
  void copy_document_marks();
  void rename_into_place();

  std::string prefix_;
  TokenType type_;
  std::unique_ptr<Buffered> tokens_;          // becomes .bin
  std::unique_ptr<Buffered> index_;           // becomes .idx: the sizes are written as they come, the rest at the end
  std::unique_ptr<Buffered> document_marks_;  // appended to .idx at the end
  int64_t num_sequences_ = 0, num_documents_ = 0, num_tokens_ = 0;
  bool finished_ = false;
  std::vector<uint16_t> narrow_;
};

}  // namespace espalier::data
