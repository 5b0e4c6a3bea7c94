// A tensor that is in a file (safetensors, torch.save), and one that something else produces piece by piece.
//
// A view is a description: nothing is open and nothing is read until a TensorReader reads it, so a folder of hundreds
// of files costs no descriptors. Whoever makes a view has checked that all of its elements are within the file.
//
//   const TensorReader reader(views.at("lm_head.weight"));       // [vocabulary, h]
//   reader.read_rows(first, last, buffer);                       // rows [first, last), row-major
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/file.h"
#include "store/safetensors.h"

namespace espalier::store {

struct TensorView {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;    // empty: one element
  std::vector<int64_t> strides;  // in elements, not negative; as many as sizes. 0 repeats (an expanded tensor).
  std::filesystem::path file;
  int64_t offset = 0;  // of the first element, in bytes from the start of the file

  int64_t num_elements() const;
  int64_t num_bytes() const { return num_elements() * size_bytes(dtype); }  // of the elements, packed
  bool contiguous() const;  // row-major without gaps; sizes of 1 may have any stride
};

// The strides of a packed row-major tensor.
std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& shape);

// Product of the sizes.
int64_t num_elements(const std::vector<int64_t>& shape);

// Rows [begin, end) of a view: the same memory, the first size end - begin. The view has at least one dimension.
TensorView rows_of(const TensorView& view, int64_t begin, int64_t end);

// Reads a view, packed row-major whatever its strides. A contiguous range goes from the file to `destination` in large
// reads; others pass a buffer of a few MiB in the order of the file. Thread-safe. A failure is a UserError with the
// path.
class TensorReader {
 public:
  explicit TensorReader(TensorView view);

  const TensorView& view() const { return view_; }
  void read(void* destination) const;                                   // view().num_bytes()
  void read_rows(int64_t begin, int64_t end, void* destination) const;  // of the first dimension

 private:
  TensorView view_;
  InputFile file_;
};

// Takes the next bytes of a tensor.
using ByteSink = std::function<void(const void* data, size_t size)>;

// A tensor to be written: asked once for its num_bytes() bytes, packed row-major, in pieces of any size, when the
// writer has come to it. So only what the producer holds is in memory.
struct TensorSource {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  std::function<void(const ByteSink& sink)> produce;

  int64_t num_bytes() const { return num_elements(shape) * size_bytes(dtype); }
};

// A source that copies a view, a few MiB at a time.
TensorSource source_of(const TensorView& view);
// A source of packed memory, which must live until it has been written.
TensorSource source_of(DType dtype, std::vector<int64_t> shape, const void* data);

}  // namespace espalier::store
