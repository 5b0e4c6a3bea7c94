// The number of tokens of each document (or sentence), and the first sentence of each document, as views of values that
// may be aligned for nothing: in a token file they begin at byte 34.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

namespace espalier::data {

// What it looks at must outlive it.
class DocumentSizes {
 public:
  DocumentSizes(const uint8_t* first, int64_t count) : first_(first), count_(count) {}
  DocumentSizes(std::span<const int32_t> sizes)  // NOLINT: a plain array is as good
      : DocumentSizes(reinterpret_cast<const uint8_t*>(sizes.data()), static_cast<int64_t>(sizes.size())) {}

  int64_t count() const { return count_; }
  int64_t operator[](int64_t document) const {
    int32_t size;
    std::memcpy(&size, address(document), sizeof size);
    return size;
  }
  const uint8_t* address(int64_t document) const { return first_ + document * static_cast<int64_t>(sizeof(int32_t)); }

 private:
  const uint8_t* first_;
  int64_t count_;
};

// Sentences [d] to [d + 1] - 1 are document d; [count()] is the end of the last one. int64 values.
class DocumentMarks {
 public:
  // What it looks at, num_documents + 1 values, must outlive it.
  DocumentMarks(const uint8_t* first, int64_t num_documents) : first_(first), count_(num_documents) {}
  DocumentMarks(std::span<const int64_t> marks)  // NOLINT: a plain array is as good
      : DocumentMarks(reinterpret_cast<const uint8_t*>(marks.data()), static_cast<int64_t>(marks.size()) - 1) {}

  int64_t count() const { return count_; }  // of documents
  int64_t operator[](int64_t document) const {
    int64_t mark;
    std::memcpy(&mark, address(document), sizeof mark);
    return mark;
  }
  const uint8_t* address(int64_t document) const { return first_ + document * static_cast<int64_t>(sizeof(int64_t)); }

 private:
  const uint8_t* first_;
  int64_t count_;
};

}  // namespace espalier::data
