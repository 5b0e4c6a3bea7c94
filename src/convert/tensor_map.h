// How the tensors of a foreign checkpoint and ours consist of each other's elements: data, used in both directions.
//
// A piece is a box of elements that is, with strides, in one tensor of ours and in one of theirs. Rows of a matrix,
// columns, a transposed matrix, the queries of every group of a fused projection, a part of a flat buffer: all are
// boxes. Importing copies pieces from theirs to ours, exporting from ours to theirs; as both read the same list, they
// cannot disagree. Types are not part of a map: they are converted on the way where the two sides differ.
//
//   TensorMap map;
//   const size_t ours = map.ours.add("layers.0.self_attention.dense.weight", {h, p});
//   const size_t theirs = map.theirs.add("h.0.attn.c_proj.weight", {p, h});
//   map.add({.sizes = {h, p}, .ours = {ours, 0, {p, 1}}, .theirs = {theirs, 0, {1, h}}});      // transposed
//   map.check();
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace espalier::convert {

struct TensorShape {
  std::string name;
  std::vector<int64_t> shape;  // row-major

  int64_t num_elements() const;
};

// The tensors of one side, by number.
class TensorList {
 public:
  // Returns the number. The name must be new.
  size_t add(const std::string& name, std::vector<int64_t> shape);
  size_t number_of(const std::string& name) const;  // the name must exist
  bool has(const std::string& name) const { return numbers_.contains(name); }
  const TensorShape& operator[](size_t number) const { return tensors_[number]; }
  size_t size() const { return tensors_.size(); }
  auto begin() const { return tensors_.begin(); }
  auto end() const { return tensors_.end(); }

 private:
  std::vector<TensorShape> tensors_;
  std::unordered_map<std::string, size_t> numbers_;
};

// Element (i, j, ...) of a box is at element offset + i * strides[0] + j * strides[1] + ... of the tensor.
struct Place {
  size_t tensor = 0;
  int64_t offset = 0;
  std::vector<int64_t> strides;
};

struct Piece {
  std::vector<int64_t> sizes;
  Place ours, theirs;
  // A further copy of elements that another piece already gives to ours (a tied output layer that is stored, what
  // every tensor rank keeps): written on export; on import it must equal what ours received.
  bool is_copy = false;
};

// Elements [begin, begin + count) of a tensor that have no counterpart: rows that pad the vocabulary, the end of a flat
// buffer. Where the tensor is the destination they become `value`; where it is the source they are left out.
struct Padding {
  size_t tensor = 0;
  int64_t begin = 0, count = 0;
  float value = 0;
};

struct TensorMap {
  TensorList ours, theirs;
  std::vector<Piece> pieces;
  std::vector<Padding> our_padding, their_padding;

  void add(Piece piece) { pieces.push_back(std::move(piece)); }

  // CHECKs that sizes and strides fit the tensors, that every element of theirs is in one piece or padding, and every
  // element of ours in one piece that is not a copy, or padding (by counting: tests look for overlaps).
  void check() const;
};

// The same elements in the same order: all of both tensors, whatever their shapes.
Piece whole(const TensorMap& map, size_t ours, size_t theirs);

// `count` rows (dimension 0) of ours from `our_row` on, and of theirs from `their_row` on; both have rows of one
// length.
Piece rows(const TensorMap& map, size_t ours, int64_t our_row, size_t theirs, int64_t their_row, int64_t count);

// Two matrices, each the other's transpose.
Piece transposed(const TensorMap& map, size_t ours, size_t theirs);

}  // namespace espalier::convert
