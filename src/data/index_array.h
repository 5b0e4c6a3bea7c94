// An array of whole numbers that may be large: 4 or 8 bytes each as its largest value needs, in memory or in a mapped
// .npy file; read as 64 bits either way.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "base/error.h"

namespace espalier::data {

class IndexArray {
 public:
  enum class Type { kInt32, kUint32, kInt64 };

  IndexArray() = default;
  // In memory, values not set. `columns` values form a row; the array holds `rows` of them.
  IndexArray(Type type, int64_t rows, int64_t columns = 1);

  Type type() const { return type_; }
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  int64_t size() const { return rows_ * columns_; }  // values
  size_t size_bytes() const;
  const void* data() const { return data_.get(); }

  int64_t operator[](int64_t at) const {
    switch (type_) {
      case Type::kInt32: return static_cast<const int32_t*>(data_.get())[at];
      case Type::kUint32: return static_cast<const uint32_t*>(data_.get())[at];
      default: return static_cast<const int64_t*>(data_.get())[at];
    }
  }

  // Calls visitor with the values as a span of their own type. Those of a mapped file must not be written to.
  template <class Visitor>
  void visit(Visitor visitor) {
    switch (type_) {
      case Type::kInt32: return visitor(values<int32_t>());
      case Type::kUint32: return visitor(values<uint32_t>());
      default: return visitor(values<int64_t>());
    }
  }

  template <class Visitor>
  void visit(Visitor visitor) const {
    const_cast<IndexArray*>(this)->visit(
        [&](auto values) { visitor(std::span<const typename decltype(values)::element_type>(values)); });
  }

  // Writes numpy's format 1.0, byte for byte as np.save does, and gives the hash64 of the values. Not atomic; the
  // system brings it to the disk when it will.
  uint64_t write_npy(const std::filesystem::path& path) const;
  // Maps a file that holds exactly this type and shape; throws a UserError with expected and found otherwise.
  static IndexArray map_npy(const std::filesystem::path& path, Type type, int64_t rows, int64_t columns = 1);
  // The rows of such a file, as its length implies them; map_npy() compares the header. 0 where it is too short.
  static int64_t rows_of_npy(const std::filesystem::path& path, Type type, int64_t columns = 1);

 private:
  template <class Value>
  std::span<Value> values() {
    return {static_cast<Value*>(data_.get()), static_cast<size_t>(size())};
  }

  Type type_ = Type::kInt64;
  int64_t rows_ = 0, columns_ = 1;
  std::shared_ptr<void> data_;  // owns the memory or the mapping
};

}  // namespace espalier::data
