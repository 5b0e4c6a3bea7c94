#include "data/token_store.h"

#include <algorithm>
#include <string_view>
#include <type_traits>

#include "base/error.h"
#include "base/format.h"

namespace espalier::data {
namespace {

constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
constexpr std::string_view kLegacyMagic("TNTIDX\0\0", 8);
constexpr uint64_t kVersion = 1;
constexpr int64_t kHeaderBytes = 34;
constexpr int64_t kVersionAt = 9, kTypeAt = 17, kNumSequencesAt = 18, kNumMarksAt = 26;

template <class Value>
Value load_at(const MappedFile& file, int64_t offset) {
  Value value;
  std::memcpy(&value, file.data() + offset, sizeof value);
  return value;
}

// A prefix that names one of the two files is the commonest slip; say so instead of looking for "x.idx.idx".
const std::string& checked_prefix(const std::string& prefix) {
  for (const char* ending : {".idx", ".bin"})
    if (prefix.ends_with(ending))
      throw UserError(concat("'", prefix, "' is one of two files; a data set is named by what they share. Use '",
                             prefix.substr(0, prefix.size() - 4), "'."),
                      ExitCode::kUsage);
  return prefix;
}

std::string name_of_code(int code) {
  static const char* const names[] = {"", "uint8", "int8", "int16", "int32", "int64", "float", "double", "uint16"};
  return code >= 1 && code <= 8 ? concat(code, " (", names[code], ")") : concat(code);
}

std::string printable(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes)
    text +=
        byte >= ' ' && byte < 0x7f ? std::string(1, byte) : format_printf("\\x%02x", static_cast<unsigned char>(byte));
  return text;
}

template <class From, class To>
void widen(const uint8_t* bytes, int64_t count, To* ids) {
  if constexpr (std::is_same_v<From, To>) {
    if (count > 0) std::memcpy(ids, bytes, static_cast<size_t>(count) * sizeof(To));
  } else {
    for (int64_t at = 0; at < count; ++at) {
      From value;
      std::memcpy(&value, bytes + at * static_cast<int64_t>(sizeof(From)), sizeof(From));
      ids[at] = static_cast<To>(value);
    }
  }
}

}  // namespace

TokenType token_type_for(int64_t vocab_size) { return vocab_size < 65500 ? TokenType::kUint16 : TokenType::kInt32; }

TokenStore::TokenStore(const std::string& prefix)
    : prefix_(checked_prefix(prefix)), index_(prefix + ".idx"), tokens_(prefix + ".bin") {
  read_header();
  check_ends();
}

void TokenStore::refuse_index(const std::string& field, const std::string& expected, const std::string& found,
                              const std::string& advice) const {
  throw UserError(concat(prefix_, ".idx: ", field, ": expected ", expected, ", found ", found, ". ",
                         advice.empty() ? "Rebuild the data set with 'espalier preprocess' or copy it again." : advice),
                  ExitCode::kBadData);
}

void TokenStore::read_header() {
  const int64_t size = static_cast<int64_t>(index_.size());
  const std::string_view content(reinterpret_cast<const char*>(index_.data()), index_.size());
  if (content.starts_with(kLegacyMagic))
    refuse_index("magic", "MMIDIDX", "TNTIDX",
                 "This is the older 'lazy' or 'cached' format; preprocess the text again, "
                 "or convert it with Megatron's merge tool and --dataset-impl mmap.");
  if (content.substr(0, kMagic.size()) != kMagic.substr(0, std::min(kMagic.size(), content.size())))
    refuse_index("magic", printable(kMagic), printable(content.substr(0, kMagic.size())),
                 "This is not the index of a token file.");
  if (size < kHeaderBytes)
    refuse_index("file size", concat("at least ", kHeaderBytes, " bytes"), concat(format_count(size), " bytes"));
  const uint64_t version = load_at<uint64_t>(index_, kVersionAt);
  if (version != kVersion) refuse_index("version", concat(kVersion), concat(version));
  const int code = load_at<uint8_t>(index_, kTypeAt);
  if (code != static_cast<int>(TokenType::kInt32) && code != static_cast<int>(TokenType::kUint16))
    refuse_index("dtype code", "4 (int32) or 8 (uint16)", name_of_code(code));
  type_ = static_cast<TokenType>(code);

  const uint64_t num_sequences = load_at<uint64_t>(index_, kNumSequencesAt);
  const uint64_t num_marks = load_at<uint64_t>(index_, kNumMarksAt);
  const uint64_t limit = static_cast<uint64_t>(size);  // keeps the product below from overflowing
  if (num_sequences > limit)
    refuse_index("number of sequences", concat("at most ", (size - kHeaderBytes) / 12, " in a file of this size"),
                 concat(num_sequences));
  if (num_marks == 0 || num_marks > limit)
    refuse_index("number of document marks", concat("1 to ", (size - kHeaderBytes) / 8, " in a file of this size"),
                 concat(num_marks));
  num_sequences_ = static_cast<int64_t>(num_sequences);
  num_document_marks_ = static_cast<int64_t>(num_marks);
  const int64_t expected = kHeaderBytes + 12 * num_sequences_ + 8 * num_document_marks_;
  if (size != expected)
    refuse_index("file size",
                 concat(format_count(expected), " bytes for ", format_count(num_sequences_), " sequences and ",
                        format_count(num_document_marks_), " document marks"),
                 concat(format_count(size), " bytes"));
  sizes_ = index_.data() + kHeaderBytes;
  starts_ = sizes_ + 4 * num_sequences_;
  document_marks_ = starts_ + 8 * num_sequences_;
}

void TokenStore::check_ends() const {
  const int64_t found_bytes = static_cast<int64_t>(tokens_.size());
  int64_t expected_bytes = 0;
  if (num_sequences_ > 0) {
    const int64_t last = num_sequences_ - 1;
    if (start_bytes(0) != 0) refuse_index("start of sequence 0", "byte 0", concat(start_bytes(0)));
    if (size(last) < 0) refuse_index(concat("size of sequence ", last), "0 or more", concat(size(last)));
    const int64_t start = start_bytes(last);
    if (start < 0 || start > found_bytes)  // also keeps the sum below from overflowing
      refuse_index(concat("start of sequence ", last),
                   concat("a byte from 0 to ", found_bytes, ", the end of the .bin"), concat(start));
    expected_bytes = start + size(last) * bytes_per_token(type_);
  }
  if (found_bytes != expected_bytes)
    throw UserError(
        concat(prefix_, ".bin: file size: expected ", format_count(expected_bytes), " bytes from the end of ",
               "the last sequence in the .idx, found ", format_count(found_bytes),
               ". The two files do not belong together or one is incomplete; rebuild the data set with ",
               "'espalier preprocess' or copy it again."),
        ExitCode::kBadData);
  if (first_sequence(0) != 0) refuse_index("document mark 0", "0", concat(first_sequence(0)));
  const int64_t documents = num_documents();
  if (first_sequence(documents) != num_sequences_)
    refuse_index(concat("document mark ", documents, " (the last)"),
                 concat(num_sequences_, ", the number of sequences"), concat(first_sequence(documents)));
}

void TokenStore::check_all() const {
  int64_t start = 0;
  for (int64_t sequence = 0; sequence < num_sequences_; ++sequence) {
    if (size(sequence) < 0) refuse_index(concat("size of sequence ", sequence), "0 or more", concat(size(sequence)));
    if (start_bytes(sequence) != start)
      refuse_index(concat("start of sequence ", sequence), concat("byte ", start, " from the sizes before it"),
                   concat(start_bytes(sequence)));
    start += size(sequence) * bytes_per_token(type_);
  }
  for (int64_t document = 0; document < num_documents(); ++document) {
    if (first_sequence(document + 1) < first_sequence(document))
      refuse_index(concat("document mark ", document + 1),
                   concat("at least ", first_sequence(document), " as in the mark before it"),
                   concat(first_sequence(document + 1)));
  }
}

const uint8_t* TokenStore::range(int64_t sequence, int64_t offset, int64_t length) const {
  ESPALIER_CHECK(sequence >= 0 && sequence < num_sequences_, "sequence ", sequence, " of ", num_sequences_, " in ",
                 prefix_);
  ESPALIER_CHECK(offset >= 0 && length >= 0 && offset + length <= size(sequence), "tokens ", offset, " to ",
                 offset + length, " of sequence ", sequence, " with ", size(sequence), " in ", prefix_);
  const int64_t start = start_bytes(sequence), bytes = static_cast<int64_t>(tokens_.size());
  // Opening looked only at the last sequence.
  if (start < 0 || start > bytes || start + size(sequence) * bytes_per_token(type_) > bytes)
    refuse_index(concat("start of sequence ", sequence),
                 concat("its ", size(sequence), " tokens inside the ", bytes, " bytes of the .bin"),
                 concat("byte ", start));
  return tokens_.data() + start + offset * bytes_per_token(type_);
}

void TokenStore::read(int64_t sequence, int64_t offset, int64_t length, int64_t* ids) const {
  const uint8_t* bytes = range(sequence, offset, length);
  if (type_ == TokenType::kUint16)
    widen<uint16_t>(bytes, length, ids);
  else
    widen<int32_t>(bytes, length, ids);
}

void TokenStore::read(int64_t sequence, int64_t offset, int64_t length, int32_t* ids) const {
  const uint8_t* bytes = range(sequence, offset, length);
  if (type_ == TokenType::kUint16)
    widen<uint16_t>(bytes, length, ids);
  else
    widen<int32_t>(bytes, length, ids);
}

}  // namespace espalier::data
