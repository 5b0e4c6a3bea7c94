#include "convert/tensor_map.h"

#include <numeric>

#include "base/error.h"

namespace espalier::convert {
namespace {

int64_t product(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

int64_t row_length(const TensorShape& tensor) {
  ESPALIER_CHECK(!tensor.shape.empty(), tensor.name, " has no rows");
  return product({tensor.shape.begin() + 1, tensor.shape.end()});
}

void check_place(const TensorList& tensors, const Place& place, const std::vector<int64_t>& sizes) {
  ESPALIER_CHECK(place.tensor < tensors.size());
  const TensorShape& tensor = tensors[place.tensor];
  ESPALIER_CHECK(place.strides.size() == sizes.size(), tensor.name);
  int64_t last = place.offset;
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    ESPALIER_CHECK(sizes[axis] >= 0 && place.strides[axis] >= 0, tensor.name);
    last += (sizes[axis] - 1) * place.strides[axis];
  }
  ESPALIER_CHECK(place.offset >= 0 && (product(sizes) == 0 || last < tensor.num_elements()), tensor.name,
                 ": a piece ends at element ", last, " of ", tensor.num_elements());
}

void add_padding(const TensorList& tensors, const std::vector<Padding>& paddings, std::vector<int64_t>& covered) {
  for (const Padding& padding : paddings) {
    ESPALIER_CHECK(padding.begin >= 0 && padding.count >= 0 &&
                       padding.begin + padding.count <= tensors[padding.tensor].num_elements(),
                   tensors[padding.tensor].name);
    covered[padding.tensor] += padding.count;
  }
}

void check_covered(const TensorList& tensors, const std::vector<int64_t>& covered) {
  for (size_t number = 0; number < tensors.size(); ++number)
    ESPALIER_CHECK(covered[number] == tensors[number].num_elements(), tensors[number].name, ": ", covered[number],
                   " of ", tensors[number].num_elements(), " elements are mapped");
}

}  // namespace

int64_t TensorShape::num_elements() const { return product(shape); }

size_t TensorList::add(const std::string& name, std::vector<int64_t> shape) {
  const bool is_new = numbers_.emplace(name, tensors_.size()).second;
  ESPALIER_CHECK(is_new, name, " occurs twice");
  tensors_.push_back({name, std::move(shape)});
  return tensors_.size() - 1;
}

size_t TensorList::number_of(const std::string& name) const {
  const auto found = numbers_.find(name);
  ESPALIER_CHECK(found != numbers_.end(), "no tensor ", name);
  return found->second;
}

void TensorMap::check() const {
  std::vector<int64_t> our_elements(ours.size(), 0), their_elements(theirs.size(), 0);
  for (const Piece& piece : pieces) {
    check_place(ours, piece.ours, piece.sizes);
    check_place(theirs, piece.theirs, piece.sizes);
    if (!piece.is_copy) our_elements[piece.ours.tensor] += product(piece.sizes);
    their_elements[piece.theirs.tensor] += product(piece.sizes);
  }
  add_padding(ours, our_padding, our_elements);
  add_padding(theirs, their_padding, their_elements);
  check_covered(ours, our_elements);
  check_covered(theirs, their_elements);
}

Piece whole(const TensorMap& map, size_t ours, size_t theirs) {
  const int64_t count = map.ours[ours].num_elements();
  ESPALIER_CHECK(count == map.theirs[theirs].num_elements(), map.ours[ours].name, " ", map.theirs[theirs].name);
  return {.sizes = {count}, .ours = {ours, 0, {1}}, .theirs = {theirs, 0, {1}}};
}

Piece rows(const TensorMap& map, size_t ours, int64_t our_row, size_t theirs, int64_t their_row, int64_t count) {
  const int64_t length = row_length(map.ours[ours]);
  ESPALIER_CHECK(length == row_length(map.theirs[theirs]), map.ours[ours].name, " ", map.theirs[theirs].name);
  return {
      .sizes = {count * length}, .ours = {ours, our_row * length, {1}}, .theirs = {theirs, their_row * length, {1}}};
}

Piece transposed(const TensorMap& map, size_t ours, size_t theirs) {
  const std::vector<int64_t>& shape = map.ours[ours].shape;
  ESPALIER_CHECK(shape.size() == 2 && map.theirs[theirs].shape == (std::vector<int64_t>{shape[1], shape[0]}),
                 map.ours[ours].name, " ", map.theirs[theirs].name);
  return {.sizes = shape, .ours = {ours, 0, {shape[1], 1}}, .theirs = {theirs, 0, {1, shape[0]}}};
}

}  // namespace espalier::convert
