// Fills tensors of one side of a map with elements of the other: what importing and exporting do with bytes.
//
// Works on any range of a destination, so that a tensor is made in blocks by several threads, and neither side has to
// be in memory: sources are usually mapped files.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "convert/tensor_map.h"
#include "store/safetensors.h"

namespace espalier::convert {

enum class Direction { kImport, kExport };  // theirs to ours, ours to theirs

// A whole tensor of the source side, row-major. Not owned, unless `owner` keeps it.
struct SourceTensor {
  store::DType dtype = store::DType::kFloat32;
  const void* data = nullptr;
  std::shared_ptr<const void> owner = {};
};

// Asked for tensors of the source side by number, by several threads at once where fill() is.
using SourceOf = std::function<SourceTensor(size_t tensor)>;

class PieceCopier {
 public:
  // `map`, checked, must outlive this.
  PieceCopier(const TensorMap& map, Direction direction, SourceOf source);

  // Elements [begin, end) of destination tensor `tensor`, as `dtype`, into `destination`. Padding gets its
  // value; an import leaves out pieces that are copies. Thread-safe.
  void fill(size_t tensor, int64_t begin, int64_t end, store::DType dtype, void* destination) const;

  // Numbers of the source tensors that `tensor` is made of, in ascending order.
  std::vector<size_t> sources_of(size_t tensor) const;

 private:
  const Place& place_to(const Piece& piece) const;
  const Place& place_from(const Piece& piece) const;

  Direction direction_;
  SourceOf source_;
  std::vector<std::vector<const Piece*>> pieces_;     // by destination tensor
  std::vector<std::vector<const Padding*>> padding_;  // by destination tensor
};

// Copies `count` elements, converting floating-point types with one rounding to nearest even (fp64 by way of fp32).
// Other types must be the same on both sides. Strides are in elements.
void copy_elements(store::DType from_type, const void* from, int64_t from_stride, store::DType to_type, void* to,
                   int64_t to_stride, int64_t count);

}  // namespace espalier::convert
