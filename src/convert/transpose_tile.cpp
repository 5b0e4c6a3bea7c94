#include "convert/internal/transpose_tile.h"

#include <cstring>

#include "base/error.h"

namespace espalier::convert {
namespace {

// One element after the other.
template <class Element>
void turn(const Element* from, Element* to) {
  for (int64_t i = 0; i < kTileSize; ++i)
    for (int64_t j = 0; j < kTileSize; ++j) to[i * kTileSize + j] = from[j * kTileSize + i];
}

// 8 x 8 elements, or 4 x 4, at a time. Each step interleaves the rows of the upper half with those of the lower half,
// which moves one bit of an element's row number to its column number.
using Row16 = uint16_t __attribute__((vector_size(16)));
using Row32 = uint32_t __attribute__((vector_size(16)));
Row16 interleave_low(Row16 a, Row16 b) { return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
Row16 interleave_high(Row16 a, Row16 b) { return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15); }
Row32 interleave_low(Row32 a, Row32 b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
Row32 interleave_high(Row32 a, Row32 b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }

template <class Row, int kRows, int kSteps, class Element>
void turn_square(const Element* from, Element* to) {
  Row rows[kRows], next[kRows];
  for (int row = 0; row < kRows; ++row) std::memcpy(&rows[row], from + row * kTileSize, sizeof(Row));
  for (int step = 0; step < kSteps; ++step) {
    for (int row = 0; row < kRows / 2; ++row) {
      next[2 * row] = interleave_low(rows[row], rows[row + kRows / 2]);
      next[2 * row + 1] = interleave_high(rows[row], rows[row + kRows / 2]);
    }
    std::memcpy(rows, next, sizeof rows);
  }
  for (int row = 0; row < kRows; ++row) std::memcpy(to + row * kTileSize, &rows[row], sizeof(Row));
}

template <class Row, int kRows, int kSteps, class Element>
void turn_in_squares(const Element* from, Element* to) {
  for (int64_t i = 0; i < kTileSize; i += kRows)
    for (int64_t j = 0; j < kTileSize; j += kRows)
      turn_square<Row, kRows, kSteps>(from + j * kTileSize + i, to + i * kTileSize + j);
}

}  // namespace

void transpose_tile(int64_t element_bytes, const void* from, void* to) {
  switch (element_bytes) {
    case 1: return turn(static_cast<const uint8_t*>(from), static_cast<uint8_t*>(to));
    case 2: return turn_in_squares<Row16, 8, 3>(static_cast<const uint16_t*>(from), static_cast<uint16_t*>(to));
    case 4: return turn_in_squares<Row32, 4, 2>(static_cast<const uint32_t*>(from), static_cast<uint32_t*>(to));
    case 8: return turn(static_cast<const uint64_t*>(from), static_cast<uint64_t*>(to));
  }
  ESPALIER_CHECK(false, element_bytes, " bytes an element");
}

}  // namespace espalier::convert
