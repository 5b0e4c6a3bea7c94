#include "store/tensor_view.h"

#include <numeric>

#include "store/internal/test_folder.h"

namespace espalier::store::tensor_view_test {
namespace {

using test::error_of;
using test::write_text;

class TensorViews : public test::TestFolder {
 protected:
  // A file of the int32 0, 1, 2, ... after 4 bytes of something else.
  std::filesystem::path counting_file(int64_t count) {
    std::string bytes(static_cast<size_t>(4 * count + 4), '\xee');
    for (int32_t i = 0; i < count; ++i) std::memcpy(bytes.data() + 4 + int64_t{4} * i, &i, 4);
    write_text(folder_ / "numbers", bytes);
    return folder_ / "numbers";
  }
};

// What is at each index, one after another: the sum of index times stride, from `first` on.
std::vector<int32_t> walked(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides, int64_t first) {
  std::vector<int64_t> places = {first};
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    std::vector<int64_t> next;
    for (const int64_t place : places)
      for (int64_t index = 0; index < shape[dim]; ++index) next.push_back(place + index * strides[dim]);
    places = next;
  }
  return {places.begin(), places.end()};
}

std::vector<int32_t> read_all(const TensorView& view) {
  std::vector<int32_t> values(static_cast<size_t>(view.num_elements()));
  TensorReader(view).read(values.data());
  return values;
}

struct Layout {
  std::vector<int64_t> shape, strides;
  int64_t first;
};

TEST_F(TensorViews, AnyStridesAreReadInTheOrderOfTheShape) {
  const auto file = counting_file(4000);
  for (const Layout& layout :
       {Layout{{}, {}, 5}, Layout{{7, 33}, {33, 1}, 0}, Layout{{33, 7}, {1, 33}, 3}, Layout{{7, 5}, {33, 1}, 5},
        Layout{{7, 1, 3}, {33, 999, 11}, 0}, Layout{{3, 7, 33}, {231, 33, 1}, 1}, Layout{{33, 3, 7}, {1, 231, 33}, 0},
        Layout{{7, 33}, {0, 1}, 9}, Layout{{7, 33}, {3, 0}, 9}, Layout{{20, 7}, {3, 1}, 0}, Layout{{40, 2}, {99, 1}, 7},
        Layout{{3, 0}, {1, 1}, 0}, Layout{{2, 3, 5}, {0, 0, 0}, 4}}) {
    const TensorView view = {DType::kInt32, layout.shape, layout.strides, file, 4 + 4 * layout.first};
    EXPECT_EQ(read_all(view), walked(layout.shape, layout.strides, layout.first))
        << testing::PrintToString(layout.shape);
  }
}

TEST_F(TensorViews, LargeStridedTensorsAreReadInPieces) {
  constexpr int64_t kRows = 1500, kColumns = 1600;  // 9.6 MB: more than one piece
  const auto file = counting_file(kRows * kColumns);
  for (const Layout& layout :
       {Layout{{kColumns, kRows}, {1, kColumns}, 0}, Layout{{kColumns / 2, kRows / 3}, {2, 3 * kColumns}, 1},
        Layout{{kRows * kColumns / 2}, {2}, 1}, Layout{{kColumns, 3}, {1, kRows / 3 * kColumns}, 0}}) {
    const TensorView view = {DType::kInt32, layout.shape, layout.strides, file, 4 + 4 * layout.first};
    EXPECT_TRUE(read_all(view) == walked(layout.shape, layout.strides, layout.first))
        << testing::PrintToString(layout.shape);
  }
}

TEST_F(TensorViews, RowsAreThoseOfTheWhole) {
  const auto file = counting_file(4000);
  for (const Layout& layout : {Layout{{33, 7}, {7, 1}, 2}, Layout{{33, 7}, {1, 33}, 2}, Layout{{33}, {4}, 2}}) {
    const TensorView view = {DType::kInt32, layout.shape, layout.strides, file, 4 + 4 * layout.first};
    const std::vector<int32_t> whole = read_all(view);
    const size_t row = whole.size() / 33;
    const TensorReader reader(view);
    std::vector<int32_t> rows(20 * row);
    reader.read_rows(6, 26, rows.data());
    EXPECT_EQ(rows, std::vector<int32_t>(whole.begin() + 6 * row, whole.begin() + 26 * row));
    reader.read_rows(33, 33, nullptr);
  }
}

TEST_F(TensorViews, ASourceGivesTheSameBytesAsTheReader) {
  const auto file = counting_file(2'400'000);
  for (const Layout& layout :
       {Layout{{1500, 1600}, {1600, 1}, 0}, Layout{{1600, 1500}, {1, 1600}, 0}, Layout{{}, {}, 7}}) {
    const TensorView view = {DType::kInt32, layout.shape, layout.strides, file, 4 + 4 * layout.first};
    std::string bytes;
    source_of(view).produce([&](const void* data, size_t size) { bytes.append(static_cast<const char*>(data), size); });
    const std::vector<int32_t> whole = read_all(view);
    ASSERT_EQ(bytes.size(), whole.size() * 4);
    EXPECT_EQ(std::memcmp(bytes.data(), whole.data(), bytes.size()), 0);
  }
}

TEST_F(TensorViews, AFileThatBecameShorterIsAnErrorWithItsName) {
  const auto file = counting_file(10);
  const TensorView view = {DType::kInt32, {11}, {1}, file, 4};
  EXPECT_NE(error_of([&] { read_all(view); }).find(file.string() + "' ends at byte 44"), std::string::npos);
}

}  // namespace
}  // namespace espalier::store::tensor_view_test
