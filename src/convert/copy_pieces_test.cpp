// Pieces against a plain walk over every element, for every range of small destinations; conversions against the
// definition of rounding.
#include "convert/copy_pieces.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "convert/internal/element_types.h"
#include "convert/internal/transpose_tile.h"

namespace espalier::convert::copy_pieces_test {
namespace {

using store::DType;

std::vector<int32_t> numbers(int64_t count) {
  std::vector<int32_t> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int32_t>(i) + 1;
  return values;
}

// What the destination must be: each element of each piece, by the definition of a place.
std::vector<int32_t> expected_of(const std::vector<Piece>& pieces, bool importing, const std::vector<int32_t>& source,
                                 int64_t count) {
  std::vector<int32_t> result(static_cast<size_t>(count), 0);
  for (const Piece& piece : pieces) {
    const Place &to = importing ? piece.ours : piece.theirs, &from = importing ? piece.theirs : piece.ours;
    int64_t elements = 1;
    for (const int64_t size : piece.sizes) elements *= size;
    for (int64_t number = 0; number < elements; ++number) {
      int64_t rest = number, to_offset = to.offset, from_offset = from.offset;
      for (size_t axis = piece.sizes.size(); axis-- > 0; rest /= piece.sizes[axis]) {
        to_offset += rest % piece.sizes[axis] * to.strides[axis];
        from_offset += rest % piece.sizes[axis] * from.strides[axis];
      }
      result[static_cast<size_t>(to_offset)] = source[static_cast<size_t>(from_offset)];
    }
  }
  return result;
}

// Every range [begin, end) where the tensor is small, ranges of awkward lengths else.
void expect_copies(const TensorMap& map) {
  map.check();
  for (const bool importing : {true, false}) {
    const TensorList &sources = importing ? map.theirs : map.ours, &targets = importing ? map.ours : map.theirs;
    const std::vector<int32_t> source = numbers(sources[0].num_elements());
    const int64_t count = targets[0].num_elements();
    const std::vector<int32_t> expected = expected_of(map.pieces, importing, source, count);
    const PieceCopier copier(map, importing ? Direction::kImport : Direction::kExport, [&](size_t) {
      return SourceTensor{DType::kInt32, source.data()};
    });
    const int64_t step = count < 100 ? 1 : count / 13;
    for (int64_t begin = 0; begin <= count; begin += step)
      for (int64_t end = begin; end <= count; end += step) {
        std::vector<int32_t> found(static_cast<size_t>(end - begin) + 1, -1);
        copier.fill(0, begin, end, DType::kInt32, found.data());
        EXPECT_EQ(found.back(), -1) << "wrote beyond [" << begin << ", " << end << ")";
        found.pop_back();
        EXPECT_EQ(found, std::vector<int32_t>(expected.begin() + begin, expected.begin() + end))
            << (importing ? "import" : "export") << " of elements " << begin << " to " << end << " of " << count;
      }
  }
}

TensorMap pair_of(std::vector<int64_t> ours, std::vector<int64_t> theirs) {
  TensorMap map;
  map.ours.add("ours", std::move(ours));
  map.theirs.add("theirs", std::move(theirs));
  return map;
}

TEST(CopyPieces, TransposesMatricesOfAnyShape) {
  for (const auto& [rows_, columns] : std::vector<std::pair<int64_t, int64_t>>{{1, 7}, {7, 1}, {7, 5}, {33, 130}}) {
    TensorMap map = pair_of({rows_, columns}, {columns, rows_});
    map.add(transposed(map, 0, 0));
    expect_copies(map);
  }
}

template <class Element>
void expect_turned() {
  constexpr size_t kSize = static_cast<size_t>(kTileSize);
  std::vector<Element> from(kSize * kSize), to(kSize * kSize);
  for (size_t at = 0; at < from.size(); ++at) from[at] = static_cast<Element>(at * 2654435761u >> 7);
  transpose_tile(sizeof(Element), from.data(), to.data());
  for (size_t i = 0; i < kSize; ++i)
    for (size_t j = 0; j < kSize; ++j) ASSERT_EQ(to[i * kSize + j], from[j * kSize + i]) << i << ", " << j;
}

TEST(TransposeTile, TurnsElementsOfEverySize) {
  expect_turned<uint8_t>();
  expect_turned<uint16_t>();
  expect_turned<uint32_t>();
  expect_turned<uint64_t>();
}

TEST(CopyPieces, MovesRowsAndDropsPadding) {
  TensorMap map = pair_of({7, 3}, {5, 3});
  map.add(rows(map, 0, 0, 0, 0, 5));
  map.our_padding.push_back({0, 15, 6});
  expect_copies(map);
}

TEST(CopyPieces, GivesPaddingItsValueInEveryType) {
  TensorMap map = pair_of({7}, {5});
  map.add(rows(map, 0, 0, 0, 0, 5));
  map.our_padding.push_back({.tensor = 0, .begin = 5, .count = 2, .value = -10'000});
  map.check();
  const std::vector<float> from = {1, 2, 3, 4, 5};
  const PieceCopier copier(map, Direction::kImport, [&](size_t) { return SourceTensor{DType::kFloat32, from.data()}; });
  std::vector<float> singles(7), tail(1);
  copier.fill(0, 0, 7, DType::kFloat32, singles.data());
  EXPECT_EQ(singles, (std::vector<float>{1, 2, 3, 4, 5, -10'000, -10'000}));
  copier.fill(0, 6, 7, DType::kFloat32, tail.data());
  EXPECT_EQ(tail[0], -10'000);
  std::vector<uint16_t> halves(7);
  copier.fill(0, 0, 7, DType::kBFloat16, halves.data());
  EXPECT_EQ(halves[4], 0x40a0);
  EXPECT_EQ(halves[5], 0xc61c) << "-9,984 in bf16";
  copier.fill(0, 0, 7, DType::kFloat16, halves.data());
  EXPECT_EQ(halves[6], 0xf0e2) << "-10,000 in fp16";
}

// Three groups of two query heads, a key and a value head of two channels; theirs has all queries, keys, values apart.
TEST(CopyPieces, InterleavesHeadsOfGroups) {
  const int64_t groups = 3, queries = 2, head = 2, columns = 3;
  const int64_t row = columns, group_rows = (queries + 2) * head;
  TensorMap map = pair_of({groups * group_rows, columns}, {groups * group_rows, columns});
  map.add({.sizes = {groups, queries * head * row},
           .ours = {0, 0, {group_rows * row, 1}},
           .theirs = {0, 0, {queries * head * row, 1}}});
  for (const int64_t part : {0, 1})
    map.add({.sizes = {groups, head * row},
             .ours = {0, (queries + part) * head * row, {group_rows * row, 1}},
             .theirs = {0, groups * (queries + part) * head * row, {head * row, 1}}});
  expect_copies(map);
}

// GPT-2's fused projection: interleaved and transposed at once, three axes.
TEST(CopyPieces, InterleavesAndTransposesTogether) {
  const int64_t heads = 3, head = 5, hidden = 15;
  TensorMap map = pair_of({3 * hidden, hidden}, {hidden, 3 * hidden});
  for (const int64_t part : {0, 1, 2})
    map.add({.sizes = {heads, head, hidden},
             .ours = {0, part * head * hidden, {3 * head * hidden, hidden, 1}},
             .theirs = {0, part * hidden, {head, 1, 3 * hidden}}});
  expect_copies(map);
}

TEST(CopyPieces, LeavesCopiesOutOfAnImport) {
  TensorMap map;
  map.ours.add("embedding", {2});
  map.theirs.add("embedding", {2});
  map.theirs.add("head", {2});
  map.add(whole(map, 0, 0));
  map.add(whole(map, 0, 1));
  map.pieces.back().is_copy = true;
  map.check();
  const std::vector<int32_t> first = {1, 2}, second = {3, 4};
  std::vector<int32_t> found(2);
  const PieceCopier import(map, Direction::kImport, [&](size_t tensor) {
    return SourceTensor{DType::kInt32, tensor == 0 ? first.data() : second.data()};
  });
  import.fill(0, 0, 2, DType::kInt32, found.data());
  EXPECT_EQ(found, first);
  const PieceCopier to_theirs(map, Direction::kExport, [&](size_t) {
    return SourceTensor{DType::kInt32, first.data()};
  });
  to_theirs.fill(1, 0, 2, DType::kInt32, found.data());
  EXPECT_EQ(found, first);
}

TEST(CopyPieces, ChecksThatEveryElementIsMapped) {
  TensorMap map = pair_of({7, 3}, {5, 3});
  map.add(rows(map, 0, 0, 0, 0, 5));
  EXPECT_ANY_THROW(map.check());
  map.our_padding.push_back({0, 15, 6});
  EXPECT_NO_THROW(map.check());
  map.pieces[0].theirs.offset = 1;
  EXPECT_ANY_THROW(map.check());
}

// The value is one of the two neighbours, and no neighbour is nearer; in a tie its last bit is 0.
template <class Element>
void expect_nearest(float value, uint16_t largest_finite) {
  const uint16_t bits = from_float<Element>(value).bits;
  const double error = std::abs(static_cast<double>(value) - to_float(Element{bits}));
  for (const int step : {-1, 1}) {
    const int neighbour = (bits & 0x7fff) + step;
    if (neighbour < 0 || neighbour > largest_finite) continue;
    const auto other = static_cast<uint16_t>((bits & 0x8000) | neighbour);
    const double other_error = std::abs(static_cast<double>(value) - to_float(Element{other}));
    EXPECT_TRUE(error < other_error || (error == other_error && bits % 2 == 0)) << value << " became " << bits;
  }
}

TEST(ElementTypes, RoundToTheNearest) {
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    const float unit = static_cast<float>(random()) / 4294967296.0f - 0.5f;
    expect_nearest<BFloat16>(std::ldexp(unit, static_cast<int>(random() % 200) - 100), 0x7f7f);
    expect_nearest<Float16>(std::ldexp(unit, static_cast<int>(random() % 40) - 24), 0x7bff);
  }
}

TEST(ElementTypes, KnownBitsOfHalfAndBrainFloats) {
  const std::vector<std::pair<float, uint16_t>> halves = {{0.0f, 0x0000},     {-0.0f, 0x8000},     {1.0f, 0x3c00},
                                                          {-2.0f, 0xc000},    {65504.0f, 0x7bff},  {65519.9f, 0x7bff},
                                                          {65520.0f, 0x7c00}, {0x1p-14f, 0x0400},  {0x1p-24f, 0x0001},
                                                          {0x1p-25f, 0x0000}, {0x1.8p-25f, 0x0001}};
  for (const auto& [value, bits] : halves) {
    EXPECT_EQ(from_float<Float16>(value).bits, bits) << value;
    if (to_float(Float16{bits}) == value) continue;
    EXPECT_EQ(from_float<Float16>(to_float(Float16{bits})).bits, bits) << value;
  }
  EXPECT_EQ(to_float(Float16{0x3555}), 0x1.554p-2f);
  EXPECT_EQ(to_float(Float16{0x03ff}), 1023 * 0x1p-24f);
  EXPECT_EQ(from_float<BFloat16>(1.0f).bits, 0x3f80);
  EXPECT_EQ(from_float<BFloat16>(std::bit_cast<float>(0x3f808000u)).bits, 0x3f80);  // tie to even
  EXPECT_EQ(from_float<BFloat16>(std::bit_cast<float>(0x3f818000u)).bits, 0x3f82);
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(from_float<BFloat16>(infinity).bits, 0x7f80);
  EXPECT_EQ(from_float<Float16>(-infinity).bits, 0xfc00);
  EXPECT_TRUE(std::isnan(to_float(from_float<BFloat16>(nan))));
  EXPECT_TRUE(std::isnan(to_float(from_float<Float16>(nan))));
}

TEST(ElementTypes, ConvertsTensorsThatBeginAtAnyByte) {
  const std::vector<float> values = {1.0f, -2.5f, 3e-8f, 1e10f};
  std::vector<char> bytes(17);
  std::memcpy(bytes.data() + 1, values.data(), 16);
  std::vector<uint16_t> found(4);
  copy_elements(DType::kFloat32, bytes.data() + 1, 1, DType::kBFloat16, found.data(), 1, 4);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(found[i], from_float<BFloat16>(values[i]).bits);
}

}  // namespace
}  // namespace espalier::convert::copy_pieces_test
