// RMS norms of heads (kernels/qk_norm.h): the lanes of a warp share a head, or divide into groups that have one each.
#include "kernels/cuda/divisor.h"
#include "kernels/cuda/norm_rows.cuh"

namespace espalier::cuda {
namespace {

using kernels::QkNormBackward;
using kernels::QkNormForward;

constexpr int kHeadPacks = 2;  // of a head that a thread has
static_assert(kMaxHeadSize <= kHeadPacks * kWarp * kPack<float>);

// A row has `queries` heads of queries, then one of keys, then one of values.
struct HeadLayout {
  Divisor heads;  // of a row
  int64_t rows, head_size;
  int queries, lanes;  // of a head: a power of two
};

template <class T>
HeadLayout head_layout(int64_t rows, int64_t queries, int64_t head_size) {
  ESPALIER_CHECK(head_size <= kMaxHeadSize && rows * (queries + 2) <= INT32_MAX, rows, " rows of ", queries,
                 " heads of ", head_size);
  int lanes = 1;
  while (lanes < kWarp && lanes * kPack<T> < head_size) lanes *= 2;
  return {Divisor(queries + 2), rows, head_size, static_cast<int>(queries), lanes};
}

// Head number `number` of all, as one of its lanes has it.
template <class T, bool kWhole>
struct Head {
  int64_t row = 0, first = 0;  // element
  int head = 0, lane;
  bool present, is_query, is_value;

  __device__ Head(const HeadLayout& layout, int64_t number, bool present)
      : lane(static_cast<int>(threadIdx.x) % layout.lanes), present(present) {
    const auto [quotient, rest] = layout.heads.divide(present ? number : 0);
    row = quotient;
    head = static_cast<int>(rest);
    first = (present ? number : 0) * layout.head_size;
    is_query = head < layout.queries;
    is_value = head == layout.queries + 1;
  }
  // Zeros where there is nothing.
  __device__ Pack<T> load(const HeadLayout& layout, const void* from, int64_t at, int number) const {
    const int64_t column = column_of(layout, number);
    if (present && column < layout.head_size)
      return load_pack<kWhole>(static_cast<const T*>(from) + at + column, layout.head_size - column);
    Pack<T> zeros;
    for (int i = 0; i < kPack<T>; ++i) store(zeros.of + i, 0.0f);
    return zeros;
  }
  template <class Values>
  __device__ void save(const HeadLayout& layout, void* to, int number, const Values& values) const {
    const int64_t column = column_of(layout, number);
    if (present && column < layout.head_size)
      store_pack<kWhole>(static_cast<T*>(to) + first + column, layout.head_size - column, values);
  }

 private:
  __device__ int64_t column_of(const HeadLayout& layout, int number) const {
    return (int64_t{number} * layout.lanes + lane) * kPack<T>;
  }
};

template <class T, bool kWhole>
__global__ void __launch_bounds__(kThreads) heads_forward_kernel(QkNormForward args, HeadLayout layout) {
  const int64_t number = int64_t{blockIdx.x} * (kThreads / layout.lanes) + threadIdx.x / layout.lanes;
  const Head<T, kWhole> at(layout, number, number < layout.rows * (layout.queries + 2));
  Pack<T> x[kHeadPacks];
  float squares = 0;
  for (int pack = 0; pack < kHeadPacks; ++pack) {
    x[pack] = at.load(layout, args.x, at.first, pack);
    for (int i = 0; i < kPack<T>; ++i) squares = fmaf(widen(x[pack].of[i]), widen(x[pack].of[i]), squares);
  }
  const float rstd = 1 / sqrtf(warp_sum(squares, layout.lanes) / static_cast<float>(layout.head_size) + args.epsilon);
  for (int pack = 0; pack < kHeadPacks; ++pack) {
    if (at.is_value) {
      at.save(layout, args.y, pack, x[pack]);
      continue;
    }
    const Pack<T> weight = at.load(layout, at.is_query ? args.query_weight : args.key_weight, 0, pack);
    float values[kPack<T>];
    for (int i = 0; i < kPack<T>; ++i) values[i] = widen(x[pack].of[i]) * rstd * widen(weight.of[i]);
    at.save(layout, args.y, pack, values);
  }
  if (at.present && !at.is_value && at.lane == 0) args.rstd[at.row * (layout.queries + 1) + at.head] = rstd;
}

// One block for the rows of a part; the sums are of queries, of keys.
template <class T, bool kWhole>
__global__ void __launch_bounds__(kThreads)
    heads_backward_kernel(QkNormBackward args, HeadLayout layout, int64_t rows_per_part, float* partials) {
  const int64_t heads = layout.queries + 2, begin = blockIdx.x * rows_per_part * heads;
  const int64_t end = min(layout.rows * heads, begin + rows_per_part * heads);
  float sums[2][kHeadPacks][kPack<T>] = {};
  for (int64_t first = begin; first < end; first += kThreads / layout.lanes) {
    const int64_t number = first + threadIdx.x / layout.lanes;
    const Head<T, kWhole> at(layout, number, number < end);
    const bool is_normalized = at.present && !at.is_value;
    const float rstd = is_normalized ? args.rstd[at.row * (layout.queries + 1) + at.head] : 0;
    const void* const weights = at.is_query ? args.query_weight : args.key_weight;
    Pack<T> x[kHeadPacks], dy[kHeadPacks], weight[kHeadPacks];
    float sum_gn = 0;
    for (int pack = 0; pack < kHeadPacks; ++pack) {
      x[pack] = at.load(layout, args.x, at.first, pack);
      dy[pack] = at.load(layout, args.dy, at.first, pack);
      weight[pack] = at.load(layout, weights, 0, pack);
      for (int i = 0; i < kPack<T>; ++i) {
        const float normalized = widen(x[pack].of[i]) * rstd, up = widen(dy[pack].of[i]);
        sum_gn = fmaf(up * widen(weight[pack].of[i]), normalized, sum_gn);
        sums[0][pack][i] += is_normalized && at.is_query ? up * normalized : 0;
        sums[1][pack][i] += is_normalized && !at.is_query ? up * normalized : 0;
      }
    }
    const float mean_gn = warp_sum(sum_gn, layout.lanes) / static_cast<float>(layout.head_size);
    for (int pack = 0; pack < kHeadPacks; ++pack) {
      if (at.is_value) {
        at.save(layout, args.dx, pack, dy[pack]);
        continue;
      }
      float values[kPack<T>];
      for (int i = 0; i < kPack<T>; ++i)
        values[i] = (widen(dy[pack].of[i]) * widen(weight[pack].of[i]) - widen(x[pack].of[i]) * rstd * mean_gn) * rstd;
      at.save(layout, args.dx, pack, values);
    }
  }
  store_part(sums, layout.head_size, layout.lanes, partials);
}

}  // namespace

void qk_norm_forward(Element type, const QkNormForward& args, int64_t rows, Stream stream) {
  if (rows == 0) return;
  with_element(type, [&](auto element) {
    using T = decltype(element);
    const HeadLayout layout = head_layout<T>(rows, args.queries, args.head_size);
    with_bool(are_whole<T>(args.head_size, {args.x, args.query_weight, args.key_weight, args.y}), [&](auto whole) {
      const unsigned blocks = num_blocks(rows * (args.queries + 2), kThreads / layout.lanes);
      launch("qk_norm_forward", heads_forward_kernel<T, whole.value>, {blocks, kThreads, 0, stream}, args, layout);
    });
  });
}

void qk_norm_backward(Element type, const QkNormBackward& args, int64_t rows, const ColumnSums& to, Stream stream) {
  if (rows > 0) {
    with_element(type, [&](auto element) {
      using T = decltype(element);
      const HeadLayout layout = head_layout<T>(rows, args.queries, args.head_size);
      with_bool(are_whole<T>(args.head_size, {args.x, args.query_weight, args.key_weight, args.dy, args.dx}),
                [&](auto whole) {
                  launch("qk_norm_backward", heads_backward_kernel<T, whole.value>,
                         {static_cast<unsigned>(num_parts(rows)), kThreads, 0, stream}, args, layout,
                         rows_of_part(rows), to.partials);
                });
    });
  }
  add_parts(to.partials, num_parts(rows), 2 * args.head_size, to.sums, stream);
}

}  // namespace espalier::cuda
