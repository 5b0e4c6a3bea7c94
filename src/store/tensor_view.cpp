#include "store/tensor_view.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace espalier::store {
namespace {

constexpr int64_t kContiguousPieceBytes = 4 << 20;
// Reading the gaps too is cheaper than one read per run of elements, as long as there are not many more of them.
constexpr int64_t kMostGapPerByte = 7;

// A dimension with its steps in the file and in the packed destination, in bytes.
struct Dimension {
  int64_t size, file_step, packed_step;
};

// Copies a strided block: walks the file in its own order, which is the order of `dimensions`, and puts what it reads
// where it belongs.
class StridedRead {
 public:
  StridedRead(const InputFile& file, const TensorView& view)
      : file_(file), element_bytes_(size_bytes(view.dtype)), begin_(view.offset) {
    int64_t packed_step = element_bytes_;
    for (size_t i = view.shape.size(); i-- > 0; packed_step *= view.shape[i])
      if (view.shape[i] != 1) dimensions_.push_back({view.shape[i], view.strides[i] * element_bytes_, packed_step});
    std::sort(dimensions_.begin(), dimensions_.end(), [](const Dimension& a, const Dimension& b) {
      return std::pair(a.file_step, a.packed_step) > std::pair(b.file_step, b.packed_step);
    });
    join_neighbours();
    // What one index of each dimension spans and holds.
    spans_.assign(dimensions_.size() + 1, element_bytes_);
    held_.assign(dimensions_.size() + 1, element_bytes_);
    for (size_t level = dimensions_.size(); level-- > 0;) {
      const Dimension& dimension = dimensions_[level];
      spans_[level] = spans_[level + 1] + (dimension.size - 1) * dimension.file_step;
      held_[level] = held_[level + 1] * (dimension.file_step == 0 ? 1 : dimension.size);
    }
  }

  void run(char* destination) { read(0, begin_, destination); }

 private:
  // Two dimensions that are one run in both orders become one.
  void join_neighbours() {
    for (size_t i = 1; i < dimensions_.size();) {
      Dimension& outer = dimensions_[i - 1];
      const Dimension& inner = dimensions_[i];
      if (outer.file_step == inner.file_step * inner.size && outer.packed_step == inner.packed_step * inner.size) {
        outer = {outer.size * inner.size, inner.file_step, inner.packed_step};
        dimensions_.erase(dimensions_.begin() + static_cast<int64_t>(i));
      } else {
        ++i;
      }
    }
  }

  void read(size_t level, int64_t offset, char* destination) {
    if (level == dimensions_.size()) return file_.read_at(destination, static_cast<size_t>(element_bytes_), offset);
    const Dimension& dimension = dimensions_[level];
    const bool last = level + 1 == dimensions_.size();
    if (last && dimension.file_step == element_bytes_ && dimension.packed_step == element_bytes_)
      return file_.read_at(destination, static_cast<size_t>(dimension.size * element_bytes_), offset);
    const int64_t inner = spans_[level + 1];
    const bool sparse =
        !last && inner <= dimension.file_step && dimension.file_step / held_[level + 1] > kMostGapPerByte;
    int64_t together = 1;  // indices of this dimension per read
    if (inner <= kContiguousPieceBytes && !sparse)
      together = dimension.file_step == 0 ? dimension.size : 1 + (kContiguousPieceBytes - inner) / dimension.file_step;
    if (together == 1 && !last) {
      for (int64_t index = 0; index < dimension.size; ++index)
        read(level + 1, offset + index * dimension.file_step, destination + index * dimension.packed_step);
      return;
    }
    for (int64_t first = 0; first < dimension.size; first += together) {
      const int64_t count = std::min(together, dimension.size - first);
      piece_.resize(static_cast<size_t>(inner + (count - 1) * dimension.file_step));
      file_.read_at(piece_.data(), piece_.size(), offset + first * dimension.file_step);
      for (int64_t index = 0; index < count; ++index)
        scatter(level + 1, piece_.data() + index * dimension.file_step,
                destination + (first + index) * dimension.packed_step);
    }
  }

  void scatter(size_t level, const char* source, char* destination) const {
    if (level == dimensions_.size()) {
      std::memcpy(destination, source, static_cast<size_t>(element_bytes_));
      return;
    }
    const Dimension& dimension = dimensions_[level];
    if (level + 1 < dimensions_.size()) {
      for (int64_t index = 0; index < dimension.size; ++index)
        scatter(level + 1, source + index * dimension.file_step, destination + index * dimension.packed_step);
      return;
    }
    if (dimension.file_step == element_bytes_ && dimension.packed_step == element_bytes_) {
      std::memcpy(destination, source, static_cast<size_t>(dimension.size * element_bytes_));
      return;
    }
    switch (element_bytes_) {
      case 1: return scatter_elements<uint8_t>(dimension, source, destination);
      case 2: return scatter_elements<uint16_t>(dimension, source, destination);
      case 4: return scatter_elements<uint32_t>(dimension, source, destination);
      default: return scatter_elements<uint64_t>(dimension, source, destination);
    }
  }

  template <class Element>
  static void scatter_elements(const Dimension& dimension, const char* source, char* destination) {
    for (int64_t index = 0; index < dimension.size; ++index)
      std::memcpy(destination + index * dimension.packed_step, source + index * dimension.file_step, sizeof(Element));
  }

  const InputFile& file_;
  int64_t element_bytes_, begin_;
  std::vector<Dimension> dimensions_;
  std::vector<int64_t> spans_, held_;
  std::vector<char> piece_;
};

void read_packed(const InputFile& file, const TensorView& view, void* destination) {
  if (view.num_elements() == 0) return;
  StridedRead(file, view).run(static_cast<char*>(destination));
}

}  // namespace

int64_t num_elements(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

int64_t TensorView::num_elements() const { return store::num_elements(shape); }

bool TensorView::contiguous() const {
  if (num_elements() == 0) return true;
  int64_t step = 1;
  for (size_t i = shape.size(); i-- > 0; step *= shape[i])
    if (shape[i] != 1 && strides[i] != step) return false;
  return true;
}

std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t step = 1;
  for (size_t i = shape.size(); i-- > 0; step *= std::max<int64_t>(shape[i], 1)) strides[i] = step;
  return strides;
}

TensorView rows_of(const TensorView& view, int64_t begin, int64_t end) {
  ESPALIER_CHECK(!view.shape.empty() && 0 <= begin && begin <= end && end <= view.shape[0], begin, " to ", end);
  TensorView rows = view;
  rows.shape[0] = end - begin;
  if (rows.num_elements() > 0) rows.offset += begin * view.strides[0] * size_bytes(view.dtype);
  return rows;
}

TensorReader::TensorReader(TensorView view) : view_(std::move(view)), file_(view_.file) {
  ESPALIER_CHECK(view_.shape.size() == view_.strides.size(), view_.file.string());
}

void TensorReader::read(void* destination) const { read_packed(file_, view_, destination); }

void TensorReader::read_rows(int64_t begin, int64_t end, void* destination) const {
  read_packed(file_, rows_of(view_, begin, end), destination);
}

TensorSource source_of(const TensorView& view) {
  const auto produce = [view](const ByteSink& sink) {
    if (view.num_elements() == 0) return;
    // A transposed matrix is read in few large pieces only, since each passes over much of the file.
    constexpr int64_t kStridedPieceBytes = 64 << 20;
    TensorView rows = view;
    const bool contiguous = view.contiguous();
    if (contiguous) rows.shape = {view.num_elements()}, rows.strides = {1};
    const TensorReader reader(rows);
    const int64_t row_bytes = rows.num_bytes() / rows.shape[0];
    const int64_t together =
        std::max<int64_t>(1, (contiguous ? kContiguousPieceBytes : kStridedPieceBytes) / row_bytes);
    std::vector<char> piece;
    for (int64_t begin = 0; begin < rows.shape[0]; begin += together) {
      const int64_t end = std::min(rows.shape[0], begin + together);
      piece.resize(static_cast<size_t>((end - begin) * row_bytes));
      reader.read_rows(begin, end, piece.data());
      sink(piece.data(), piece.size());
    }
  };
  return {view.dtype, view.shape, produce};
}

TensorSource source_of(DType dtype, std::vector<int64_t> shape, const void* data) {
  const auto bytes = static_cast<size_t>(num_elements(shape) * size_bytes(dtype));
  return {dtype, std::move(shape), [data, bytes](const ByteSink& sink) {
            if (bytes > 0) sink(data, bytes);
          }};
}

}  // namespace espalier::store
