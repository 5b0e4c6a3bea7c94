// The index of a token file (`<prefix>.idx`): how many sequences there are, where each begins, which form a document.
//
// Megatron has two formats, and both are read: the 'mmap' one (MMIDIDX), which is also written, and the older one of
// its 'lazy' and 'cached' data sets (TNTIDX). docs/data-path.md has their layouts. The bytes belong to the caller and
// must outlive the index; of an old index the sizes and starts are kept converted, 12 bytes a sequence.
//
// The constructor checks the header and the length; check_ends() the ends of the arrays and the length of the .bin;
// check_all() every entry. What is wrong is a UserError (exit code 65) with the file, the field and where it is,
// the expected and the found value.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "data/document_sizes.h"

namespace espalier::data {

// The value is the file's code for the type. Other codes exist and never hold tokens.
enum class TokenType : uint8_t { kInt32 = 4, kUint16 = 8 };

inline int64_t bytes_per_token(TokenType type) { return type == TokenType::kUint16 ? 2 : 4; }
inline const char* name_of(TokenType type) { return type == TokenType::kUint16 ? "uint16" : "int32"; }

enum class IndexFormat { kMmap, kLegacy };

// "mmap", or "lazy or cached", as --data-impl has them.
inline const char* name_of(IndexFormat format) { return format == IndexFormat::kMmap ? "mmap" : "lazy or cached"; }

class TokenIndex {
 public:
  // `file_name` is for messages.
  TokenIndex(std::span<const uint8_t> bytes, std::string file_name);

  IndexFormat format() const { return format_; }
  TokenType type() const { return type_; }
  int64_t num_sequences() const { return num_sequences_; }
  int64_t num_documents() const { return num_document_marks_ - 1; }

  // Tokens of one sequence; inline, because index builders call it for every sequence.
  int64_t size(int64_t sequence) const { return load<int32_t>(sizes_, sequence); }
  DocumentSizes sizes() const { return {sizes_, num_sequences_}; }
  // Byte of the .bin at which it begins.
  int64_t start_bytes(int64_t sequence) const { return load<int64_t>(starts_, sequence); }
  // Sequences first_sequence(d) .. first_sequence(d + 1) - 1 are document d; d = num_documents() gives the end.
  int64_t first_sequence(int64_t document) const { return load<int64_t>(document_marks_, document); }
  DocumentMarks document_marks() const { return {document_marks_, num_documents()}; }

  // `token_bytes` is the length of the file `tokens_name`.
  void check_ends(int64_t token_bytes, const std::string& tokens_name) const;
  void check_all() const;
  [[noreturn]] void refuse(const std::string& field, const std::string& expected, const std::string& found,
                           const std::string& advice = "") const;

 private:
  // The arrays of an mmap index begin at byte 34, aligned for nothing.
  template <class Value>
  static Value load(const uint8_t* array, int64_t index) {
    Value value;
    std::memcpy(&value, array + index * static_cast<int64_t>(sizeof(Value)), sizeof(Value));
    return value;
  }
  void read_mmap_header(std::span<const uint8_t> bytes);
  void read_legacy(std::span<const uint8_t> bytes);
  void convert_legacy_sequences(const uint8_t* dim_offsets, const uint8_t* offsets, const uint8_t* dims);
  void read_type(uint64_t code, const std::string& where);

  std::string file_name_;
  IndexFormat format_ = IndexFormat::kMmap;
  TokenType type_ = TokenType::kInt32;
  int64_t num_sequences_ = 0, num_document_marks_ = 0;
  const uint8_t* sizes_ = nullptr;           // int32 [num_sequences]
  const uint8_t* starts_ = nullptr;          // int64 [num_sequences], byte offsets into .bin
  const uint8_t* document_marks_ = nullptr;  // int64 [num_documents + 1]
  std::vector<uint8_t> converted_;           // of an old index: what sizes_ and starts_ point at
};

}  // namespace espalier::data
