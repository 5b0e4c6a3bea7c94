// The number of tokens of each document, as a view of int32 values that may be aligned for nothing: in a token file
// they begin at byte 34.
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

}  // namespace espalier::data
