#include "data/token_index.h"

#include <algorithm>
#include <limits>
#include <string_view>

#include "base/error.h"
#include "base/format.h"

namespace espalier::data {
namespace {

constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
constexpr std::string_view kLegacyMagic("TNTIDX\0\0", 8);
constexpr uint64_t kVersion = 1;
constexpr int64_t kHeaderBytes = 34, kLegacyHeaderBytes = 56;
constexpr int64_t kVersionAt = 9, kTypeAt = 17, kNumSequencesAt = 18, kNumMarksAt = 26;
constexpr int64_t kLegacyVersionAt = 8, kLegacyTypeAt = 16, kLegacyElementSizeAt = 24, kLegacyNumItemsAt = 32,
                  kLegacyNumDimsAt = 40, kLegacyNumMarksAt = 48;

template <class Value>
Value load_at(std::span<const uint8_t> bytes, int64_t offset) {
  Value value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

std::string name_of_code(uint64_t code) {
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

}  // namespace

TokenIndex::TokenIndex(std::span<const uint8_t> bytes, std::string file_name) : file_name_(std::move(file_name)) {
  const std::string_view content(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (content.starts_with(kLegacyMagic))
    read_legacy(bytes);
  else if (content.substr(0, kMagic.size()) == kMagic.substr(0, std::min(kMagic.size(), content.size())))
    read_mmap_header(bytes);
  else
    refuse("magic", printable(kMagic), printable(content.substr(0, kMagic.size())),
           "This is not the index of a token file.");
}

void TokenIndex::refuse(const std::string& field, const std::string& expected, const std::string& found,
                        const std::string& advice) const {
  throw UserError(concat(file_name_, ": ", field, ": expected ", expected, ", found ", found, ". ",
                         advice.empty() ? "Rebuild the data set with 'espalier preprocess' or copy it again." : advice),
                  ExitCode::kBadData);
}

void TokenIndex::read_type(uint64_t code, const std::string& where) {
  if (code != static_cast<uint64_t>(TokenType::kInt32) && code != static_cast<uint64_t>(TokenType::kUint16))
    refuse("dtype code" + where, "4 (int32) or 8 (uint16)", name_of_code(code));
  type_ = static_cast<TokenType>(code);
}

void TokenIndex::read_mmap_header(std::span<const uint8_t> bytes) {
  const int64_t size = static_cast<int64_t>(bytes.size());
  if (size < kHeaderBytes)
    refuse("file size", concat("at least ", kHeaderBytes, " bytes"), concat(format_count(size), " bytes"));
  const uint64_t version = load_at<uint64_t>(bytes, kVersionAt);
  if (version != kVersion) refuse("version", concat(kVersion), concat(version));
  read_type(load_at<uint8_t>(bytes, kTypeAt), "");

  const uint64_t num_sequences = load_at<uint64_t>(bytes, kNumSequencesAt);
  const uint64_t num_marks = load_at<uint64_t>(bytes, kNumMarksAt);
  const uint64_t limit = static_cast<uint64_t>(size);  // keeps the product below from overflowing
  if (num_sequences > limit)
    refuse("number of sequences", concat("at most ", (size - kHeaderBytes) / 12, " in a file of this size"),
           concat(num_sequences));
  if (num_marks == 0 || num_marks > limit)
    refuse("number of document marks", concat("1 to ", (size - kHeaderBytes) / 8, " in a file of this size"),
           concat(num_marks));
  num_sequences_ = static_cast<int64_t>(num_sequences);
  num_document_marks_ = static_cast<int64_t>(num_marks);
  const int64_t expected = kHeaderBytes + 12 * num_sequences_ + 8 * num_document_marks_;
  if (size != expected)
    refuse("file size",
           concat(format_count(expected), " bytes for ", format_count(num_sequences_), " sequences and ",
                  format_count(num_document_marks_), " document marks"),
           concat(format_count(size), " bytes"));
  sizes_ = bytes.data() + kHeaderBytes;
  starts_ = sizes_ + 4 * num_sequences_;
  document_marks_ = starts_ + 8 * num_sequences_;
}

// Numbers of 64 bits: version, type, bytes of an element, items, entries of `dims`, marks; then for each item and one
// more where its entries of `dims` begin, and at which element its tokens; then dims (one to an item: its size), marks.
void TokenIndex::read_legacy(std::span<const uint8_t> bytes) {
  format_ = IndexFormat::kLegacy;
  const int64_t size = static_cast<int64_t>(bytes.size());
  if (size < kLegacyHeaderBytes)
    refuse("file size", concat("at least ", kLegacyHeaderBytes, " bytes"), concat(format_count(size), " bytes"));
  const uint64_t version = load_at<uint64_t>(bytes, kLegacyVersionAt);
  if (version != kVersion) refuse("version", concat(kVersion), concat(version));
  read_type(load_at<uint64_t>(bytes, kLegacyTypeAt), " (byte 16)");
  const uint64_t element_size = load_at<uint64_t>(bytes, kLegacyElementSizeAt);
  if (element_size != static_cast<uint64_t>(bytes_per_token(type_)))
    refuse("element size (byte 24)", concat(bytes_per_token(type_), " bytes for ", name_of(type_)),
           concat(element_size));
  const uint64_t num_items = load_at<uint64_t>(bytes, kLegacyNumItemsAt);
  const uint64_t num_dims = load_at<uint64_t>(bytes, kLegacyNumDimsAt);
  const uint64_t num_marks = load_at<uint64_t>(bytes, kLegacyNumMarksAt);
  const uint64_t limit = static_cast<uint64_t>(size) / 8;  // keeps the sums below from overflowing
  if (num_items > limit)
    refuse("number of items (byte 32)", concat("at most ", limit, " in a file of this size"), concat(num_items));
  if (num_dims != num_items)
    refuse("number of sizes (byte 40)", concat(num_items, ", one for each item"), concat(num_dims));
  if (num_marks == 0 || num_marks > limit)
    refuse("number of document marks (byte 48)", concat("1 to ", limit, " in a file of this size"), concat(num_marks));
  num_sequences_ = static_cast<int64_t>(num_items);
  num_document_marks_ = static_cast<int64_t>(num_marks);
  const int64_t expected = kLegacyHeaderBytes + 8 * (2 * (num_sequences_ + 1) + num_sequences_ + num_document_marks_);
  if (size != expected)
    refuse("file size",
           concat(format_count(expected), " bytes for ", format_count(num_sequences_), " items and ",
                  format_count(num_document_marks_), " document marks"),
           concat(format_count(size), " bytes"));
  const uint8_t* const dim_offsets = bytes.data() + kLegacyHeaderBytes;
  const uint8_t* const offsets = dim_offsets + 8 * (num_sequences_ + 1);
  const uint8_t* const dims = offsets + 8 * (num_sequences_ + 1);
  document_marks_ = dims + 8 * num_sequences_;
  convert_legacy_sequences(dim_offsets, offsets, dims);
}

void TokenIndex::convert_legacy_sequences(const uint8_t* dim_offsets, const uint8_t* offsets, const uint8_t* dims) {
  converted_.resize(static_cast<size_t>(12 * num_sequences_));
  uint8_t* const sizes = converted_.data();
  uint8_t* const starts = sizes + 4 * num_sequences_;
  const int64_t largest_offset = std::numeric_limits<int64_t>::max() / bytes_per_token(type_);
  for (int64_t item = 0; item < num_sequences_; ++item) {
    const int64_t dims_of_item = load<int64_t>(dim_offsets, item), offset = load<int64_t>(offsets, item);
    const int64_t wide = load<int64_t>(dims, item);
    if (dims_of_item != item)
      refuse(concat("dimensions of item ", item), concat("to begin at ", item, ", one for each item"),
             concat(dims_of_item));
    if (wide < 0 || wide > std::numeric_limits<int32_t>::max())
      refuse(concat("size of item ", item), concat("0 to ", std::numeric_limits<int32_t>::max()), concat(wide));
    if (offset < 0 || offset > largest_offset)
      refuse(concat("start of item ", item), "an element of the .bin", concat(offset));
    const int32_t narrow = static_cast<int32_t>(wide);
    const int64_t start = offset * bytes_per_token(type_);
    std::memcpy(sizes + 4 * item, &narrow, sizeof narrow);
    std::memcpy(starts + 8 * item, &start, sizeof start);
  }
  sizes_ = sizes;
  starts_ = starts;
  const int64_t last = num_sequences_;
  const int64_t end = last == 0 ? 0 : load<int64_t>(offsets, last - 1) + load<int64_t>(dims, last - 1);
  if (load<int64_t>(offsets, last) != end)
    refuse("end of the last item", concat("element ", end, " from its start and size"),
           concat(load<int64_t>(offsets, last)));
}

void TokenIndex::check_ends(int64_t token_bytes, const std::string& tokens_name) const {
  int64_t expected_bytes = 0;
  if (num_sequences_ > 0) {
    const int64_t last = num_sequences_ - 1;
    if (start_bytes(0) != 0) refuse("start of sequence 0", "byte 0", concat(start_bytes(0)));
    if (size(last) < 0) refuse(concat("size of sequence ", last), "0 or more", concat(size(last)));
    const int64_t start = start_bytes(last);
    if (start < 0 || start > token_bytes)  // also keeps the sum below from overflowing
      refuse(concat("start of sequence ", last), concat("a byte from 0 to ", token_bytes, ", the end of the .bin"),
             concat(start));
    expected_bytes = start + size(last) * bytes_per_token(type_);
  }
  if (token_bytes != expected_bytes)
    throw UserError(
        concat(tokens_name, ": file size: expected ", format_count(expected_bytes), " bytes from the end of ",
               "the last sequence in the .idx, found ", format_count(token_bytes),
               ". The two files do not belong together or one is incomplete; rebuild the data set with ",
               "'espalier preprocess' or copy it again."),
        ExitCode::kBadData);
  if (first_sequence(0) != 0) refuse("document mark 0", "0", concat(first_sequence(0)));
  const int64_t documents = num_documents();
  if (first_sequence(documents) != num_sequences_)
    refuse(concat("document mark ", documents, " (the last)"), concat(num_sequences_, ", the number of sequences"),
           concat(first_sequence(documents)));
}

void TokenIndex::check_all() const {
  int64_t start = 0;
  for (int64_t sequence = 0; sequence < num_sequences_; ++sequence) {
    if (size(sequence) < 0) refuse(concat("size of sequence ", sequence), "0 or more", concat(size(sequence)));
    if (start_bytes(sequence) != start)
      refuse(concat("start of sequence ", sequence), concat("byte ", start, " from the sizes before it"),
             concat(start_bytes(sequence)));
    start += size(sequence) * bytes_per_token(type_);
  }
  for (int64_t document = 0; document < num_documents(); ++document) {
    if (first_sequence(document + 1) < first_sequence(document))
      refuse(concat("document mark ", document + 1),
             concat("at least ", first_sequence(document), " as in the mark before it"),
             concat(first_sequence(document + 1)));
  }
}

}  // namespace espalier::data
