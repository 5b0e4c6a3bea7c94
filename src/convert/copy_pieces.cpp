#include "convert/copy_pieces.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/error.h"
#include "convert/internal/element_types.h"
#include "convert/internal/transpose_tile.h"

namespace espalier::convert {
namespace {

using store::DType;

struct Axis {
  int64_t size, to, from;  // strides in elements
};

// From the longest stride of the destination to the shortest, so that the elements of one index are together there;
// axes that continue one another on both sides are one. Where the last is not the one along which the source is
// together, that one comes before it: the two make tiles.
std::vector<Axis> axes_of(const std::vector<int64_t>& sizes, const Place& to, const Place& from) {
  std::vector<Axis> axes;
  for (size_t axis = 0; axis < sizes.size(); ++axis)
    if (sizes[axis] != 1) axes.push_back({sizes[axis], to.strides[axis], from.strides[axis]});
  std::stable_sort(axes.begin(), axes.end(), [](const Axis& a, const Axis& b) { return a.to > b.to; });
  std::vector<Axis> joined;
  for (const Axis& axis : axes) {
    Axis* last = joined.empty() ? nullptr : &joined.back();
    if (last != nullptr && last->to == axis.size * axis.to && last->from == axis.size * axis.from)
      *last = {last->size * axis.size, axis.to, axis.from};
    else
      joined.push_back(axis);
  }
  if (joined.empty()) joined.push_back({1, 1, 1});
  const auto before_last = joined.end() - 1;
  const auto along =
      std::min_element(joined.begin(), before_last, [](const Axis& a, const Axis& b) { return a.from < b.from; });
  if (along != before_last && along->from < joined.back().from) std::rotate(along, along + 1, before_last);
  return joined;
}

// Copies what of a box is in [begin, end) of the destination.
class BoxCopy {
 public:
  BoxCopy(std::vector<Axis> axes, int64_t begin, int64_t end, DType from_type, const void* from, DType to_type,
          void* to)
      : axes_(std::move(axes)),
        spans_(axes_.size(), 1),
        begin_(begin),
        end_(end),
        from_type_(from_type),
        from_(static_cast<const char*>(from)),
        to_type_(to_type),
        to_(static_cast<char*>(to)) {
    for (size_t axis = axes_.size(); axis-- > 0;)
      spans_[axis] = (axes_[axis].size - 1) * axes_[axis].to + (axis + 1 < axes_.size() ? spans_[axis + 1] : 1);
  }

  void run(int64_t to_offset, int64_t from_offset) const {
    if (std::all_of(axes_.begin(), axes_.end(), [](const Axis& axis) { return axis.size > 0; }))
      copy(0, to_offset, from_offset);
  }

 private:
  // Indices of an axis from which something is in the range.
  struct Indices {
    int64_t begin, end;
  };
  Indices indices_in_range(size_t depth, int64_t to_offset) const {
    const Axis& axis = axes_[depth];
    const int64_t span = depth + 1 < axes_.size() ? spans_[depth + 1] : 1;  // of one index
    const int64_t before = begin_ - to_offset - span + 1;                   // first offset that still reaches begin_
    const int64_t after = end_ - to_offset;
    return {before <= 0 ? 0 : std::min(axis.size, (before + axis.to - 1) / axis.to),
            after <= 0 ? 0 : std::min(axis.size, (after + axis.to - 1) / axis.to)};
  }

  void copy(size_t depth, int64_t to_offset, int64_t from_offset) const {
    const Axis& axis = axes_[depth];
    if (depth + 1 == axes_.size()) return copy_run(to_offset, from_offset);
    if (depth + 2 == axes_.size() && axis.from < axes_.back().from) return copy_tiles(to_offset, from_offset);
    const Indices indices = indices_in_range(depth, to_offset);
    for (int64_t i = indices.begin; i < indices.end; ++i)
      copy(depth + 1, to_offset + i * axis.to, from_offset + i * axis.from);
  }

  void copy_run(int64_t to_offset, int64_t from_offset) const {
    const Indices indices = indices_in_range(axes_.size() - 1, to_offset);
    copy_part(to_offset, from_offset, indices.begin, indices.end);
  }

  void copy_part(int64_t to_offset, int64_t from_offset, int64_t begin, int64_t end) const {
    const Axis& axis = axes_.back();
    if (begin < end)
      copy_elements(from_type_, from_ + (from_offset + begin * axis.from) * size_bytes(from_type_), axis.from, to_type_,
                    to_ + (to_offset + begin * axis.to - begin_) * size_bytes(to_type_), axis.to, end - begin);
  }

  // A transposed matrix: row by row every element would come from another cache line, and where rows are a power of two
  // apart, all of them from the same few places of the cache. So a tile is gathered along the source and turned.
  void copy_tiles(int64_t to_offset, int64_t from_offset) const {
    const Axis &outer = axes_[axes_.size() - 2], &inner = axes_.back();
    const Indices rows = indices_in_range(axes_.size() - 2, to_offset);
    std::vector<Indices> inside;  // of each row
    for (int64_t i = rows.begin; i < rows.end; ++i)
      inside.push_back(indices_in_range(axes_.size() - 1, to_offset + i * outer.to));
    const int64_t from_bytes = size_bytes(from_type_), to_bytes = size_bytes(to_type_);
    const bool keeps_bits = from_type_ == to_type_ && outer.from == 1;
    alignas(64) char gathered[kTileSize * kTileSize * sizeof(double)], turned[sizeof gathered];
    // Along the source in the inner loop: its next tile is next to this one.
    for (int64_t column = 0; column < inner.size; column += kTileSize) {
      const int64_t column_end = std::min(column + kTileSize, inner.size);
      for (int64_t row = rows.begin; row < rows.end; row += kTileSize) {
        const int64_t row_end = std::min(row + kTileSize, rows.end);
        const char* from = from_ + (from_offset + row * outer.from + column * inner.from) * from_bytes;
        char* line = gathered;
        for (int64_t j = column; j < column_end; ++j, from += inner.from * from_bytes, line += kTileSize * to_bytes) {
          if (keeps_bits)
            std::memcpy(line, from, static_cast<size_t>((row_end - row) * to_bytes));
          else
            copy_elements(from_type_, from, outer.from, to_type_, line, 1, row_end - row);
        }
        transpose_tile(to_bytes, gathered, turned);
        for (int64_t i = row; i < row_end; ++i) {
          const Indices& range = inside[static_cast<size_t>(i - rows.begin)];
          const int64_t begin = std::max(column, range.begin), end = std::min(column_end, range.end);
          if (begin >= end) continue;
          const char* const made = turned + ((i - row) * kTileSize + begin - column) * to_bytes;
          char* const to = to_ + (to_offset + i * outer.to + begin * inner.to - begin_) * to_bytes;
          if (inner.to == 1)
            std::memcpy(to, made, static_cast<size_t>((end - begin) * to_bytes));
          else
            copy_elements(to_type_, made, 1, to_type_, to, inner.to, end - begin);
        }
      }
    }
  }

  std::vector<Axis> axes_;
  std::vector<int64_t> spans_;  // elements of the destination from the first to the last of the inner axes
  int64_t begin_, end_;
  DType from_type_;
  const char* from_;
  DType to_type_;
  char* to_;
};

// Zeros are zero bytes in every type; other values exist in floating-point types only.
void pad(const Padding& padding, int64_t begin, int64_t end, DType type, void* destination) {
  const int64_t first = std::max(begin, padding.begin), last = std::min(end, padding.begin + padding.count);
  if (first >= last) return;
  char* const to = static_cast<char*>(destination) + (first - begin) * size_bytes(type);
  if (padding.value == 0)
    std::memset(to, 0, static_cast<size_t>((last - first) * size_bytes(type)));
  else
    copy_elements(DType::kFloat32, &padding.value, 0, type, to, 1, last - first);
}

}  // namespace

PieceCopier::PieceCopier(const TensorMap& map, Direction direction, SourceOf source)
    : direction_(direction), source_(std::move(source)) {
  const bool importing = direction == Direction::kImport;
  pieces_.resize(importing ? map.ours.size() : map.theirs.size());
  padding_.resize(pieces_.size());
  for (const Piece& piece : map.pieces)
    if (!importing || !piece.is_copy) pieces_[place_to(piece).tensor].push_back(&piece);
  for (const Padding& padding : importing ? map.our_padding : map.their_padding)
    padding_[padding.tensor].push_back(&padding);
}

const Place& PieceCopier::place_to(const Piece& piece) const {
  return direction_ == Direction::kImport ? piece.ours : piece.theirs;
}
const Place& PieceCopier::place_from(const Piece& piece) const {
  return direction_ == Direction::kImport ? piece.theirs : piece.ours;
}

void PieceCopier::fill(size_t tensor, int64_t begin, int64_t end, DType dtype, void* destination) const {
  for (const Padding* padding : padding_[tensor]) pad(*padding, begin, end, dtype, destination);
  for (const Piece* piece : pieces_[tensor]) {
    const Place &to = place_to(*piece), &from = place_from(*piece);
    const SourceTensor source = source_(from.tensor);
    BoxCopy(axes_of(piece->sizes, to, from), begin, end, source.dtype, source.data, dtype, destination)
        .run(to.offset, from.offset);
  }
}

std::vector<size_t> PieceCopier::sources_of(size_t tensor) const {
  std::set<size_t> numbers;
  for (const Piece* piece : pieces_[tensor]) numbers.insert(place_from(*piece).tensor);
  return {numbers.begin(), numbers.end()};
}

}  // namespace espalier::convert
