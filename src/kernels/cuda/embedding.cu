// Rows of an embedding (kernels/embedding.h).
#include "kernels/cuda/divisor.h"
#include "kernels/cuda/vectors.cuh"

namespace espalier::cuda {
namespace {

template <class T, bool kWhole>
struct Gathered {
  static constexpr int kCount = kTaken<T, kWhole>, kSums = 1;
  EmbeddingForward args;
  Divisor samples;
  __device__ void operator()(int64_t row, int64_t column, float (*)[kCount]) const {
    const auto [position, sample] = samples.divide(row);
    const int64_t id = args.ids[sample * args.length + position] - args.first_row;
    T* const to = static_cast<T*>(args.y) + row * args.columns + column;
    if (id >= 0 && id < args.num_rows) {
      const T* const from = static_cast<const T*>(args.weight) + id * args.columns + column;
      store_pack<kWhole>(to, kCount, load_some<kWhole, kCount>(from, kCount));
    } else {
      const float zeros[kCount] = {};
      store_pack<kWhole>(to, kCount, zeros);
    }
  }
};

// ---- backward
//
// The sorted tokens are divided into runs of kTokensOfRun. Within a run the sum of an id that ends there goes to the
// gradient if the id began there, and else, as the sum of one that goes on, to the run's partial sums: those of the id
// that the run begins with. An id that goes on beyond the run in which it begins is finished by another kernel, which
// adds up its runs.

template <bool kWhole, int kCount>
__device__ void add_pack(float* to, int64_t left, const float (&sums)[kCount]) {
  auto pack = load_some<kWhole, kCount>(static_cast<const float*>(to), left);
  for (int i = 0; i < kCount; ++i) pack.of[i] += sums[i];
  store_pack<kWhole>(to, left, pack);
}

constexpr int kAhead = 4;  // what a thread reads before it adds

// The row of the gradient of a token, or -1: another shard's.
__device__ int64_t row_of(const EmbeddingBackward& args, int64_t token) {
  const int64_t row = args.sorted_ids[token] - args.first_row;
  return row >= 0 && row < args.num_rows ? row : -1;
}

// Runs along x.
template <class T, bool kWhole>
__global__ void __launch_bounds__(kThreads) sum_runs_kernel(EmbeddingBackward args, int64_t runs) {
  constexpr int kCount = kTaken<T, kWhole>;
  const int64_t run = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const int64_t column = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kCount, columns = args.columns;
  if (run >= runs || column >= columns) return;
  const int64_t begin = run * kTokensOfRun, end = min(args.num_tokens, begin + kTokensOfRun);
  float sums[kCount] = {};
  int64_t first_of_id = begin;
  for (int64_t first = begin; first < end; first += kAhead) {
    Pack<T, kCount> packs[kAhead];
    for (int i = 0; i < kAhead; ++i)
      if (first + i < end)
        packs[i] = load_some<kWhole, kCount>(static_cast<const T*>(args.dy) + args.order[first + i] * columns + column,
                                             kCount);
    for (int ahead = 0; ahead < kAhead && first + ahead < end; ++ahead) {
      const int64_t token = first + ahead, id = args.sorted_ids[token];
      for (int i = 0; i < kCount; ++i) sums[i] += widen(packs[ahead].of[i]);
      const bool ends = token + 1 == args.num_tokens || args.sorted_ids[token + 1] != id;
      if (!ends && token + 1 < end) continue;
      // In a run, only the id that it begins with can have begun before, and only its last one can go on.
      const bool began_before = first_of_id == begin && begin > 0 && args.sorted_ids[begin - 1] == id;
      const int64_t row = row_of(args, token);
      if (began_before)
        store_pack<kWhole>(args.partials + run * columns + column, kCount, sums);
      else if (row >= 0)
        add_pack<kWhole>(args.grad + row * columns + column, kCount, sums);
      for (int i = 0; i < kCount; ++i) sums[i] = 0;
      first_of_id = token + 1;
    }
  }
}

// One block for each run whose last id goes on beyond it and began in it: adds the partial sums of the runs that
// follow, a warp every eighth.
template <bool kWhole>
__global__ void __launch_bounds__(kThreads) finish_runs_kernel(EmbeddingBackward args, int64_t runs) {
  constexpr int kCount = kTaken<float, kWhole>, kWarps = kThreads / kWarp;
  __shared__ float of_warp[kWarps][kCount][kWarp];
  const int64_t run = blockIdx.x, columns = args.columns;
  const int64_t column = (int64_t{blockIdx.y} * kWarp + threadIdx.x) * kCount;
  const int64_t last = (run + 1) * kTokensOfRun - 1, id = args.sorted_ids[last], row = row_of(args, last);
  const bool goes_on = args.sorted_ids[last + 1] == id;
  const bool began_here = run == 0 || args.sorted_ids[run * kTokensOfRun - 1] != id;
  if (!goes_on || !began_here || row < 0) return;
  float sums[kCount] = {};
  const auto is_of_id = [&](int64_t next) { return next < runs && args.sorted_ids[next * kTokensOfRun] == id; };
  int64_t next = run + 1 + threadIdx.y;
  for (bool more = column < columns; more; next += kAhead * kWarps) {
    Pack<float, kCount> packs[kAhead] = {};
    for (int i = 0; i < kAhead; ++i) {
      more = is_of_id(next + i * kWarps);
      if (more) packs[i] = load_some<kWhole, kCount>(args.partials + (next + i * kWarps) * columns + column, kCount);
    }
    for (const auto& pack : packs)
      for (int i = 0; i < kCount; ++i) sums[i] += pack.of[i];
  }
  for (int i = 0; i < kCount; ++i) of_warp[threadIdx.y][i][threadIdx.x] = sums[i];
  __syncthreads();
  if (threadIdx.y > 0 || column >= columns) return;
  for (int i = 0; i < kCount; ++i) sums[i] = 0;
  for (int warp = 0; warp < kWarps; ++warp)
    for (int i = 0; i < kCount; ++i) sums[i] += of_warp[warp][i][threadIdx.x];
  add_pack<kWhole>(args.grad + row * columns + column, kCount, sums);
}

}  // namespace

void embedding_forward(Element type, const EmbeddingForward& args, Stream stream) {
  const int64_t rows = args.num_samples * args.length;
  ESPALIER_CHECK(rows <= INT32_MAX, rows, " tokens");
  if (rows == 0) return;
  with_element(type, [&](auto element) {
    using T = decltype(element);
    with_bool(are_whole<T>(args.columns, {args.weight, args.y}), [&](auto whole) {
      launch_packs("embedding_forward", Gathered<T, whole.value>{args, Divisor(args.num_samples)}, rows, args.columns,
                   stream);
    });
  });
}

void embedding_backward(Element type, const EmbeddingBackward& args, Stream stream) {
  if (args.num_tokens == 0 || args.columns == 0) return;
  const int64_t runs = embedding_partials(args.num_tokens);
  const dim3 block(kWarp, kThreads / kWarp);
  with_element(type, [&](auto element) {
    using T = decltype(element);
    with_bool(are_whole<T>(args.columns, {args.dy, args.grad, args.partials}), [&](auto whole) {
      const int64_t packs = num_packs(args.columns, kTaken<T, whole.value>);
      const dim3 grid(num_blocks(runs, block.y), num_blocks(packs, kWarp));
      launch("embedding_backward", sum_runs_kernel<T, whole.value>, {grid, block, 0, stream}, args, runs);
      if (runs == 1) return;  // nothing goes on
      const dim3 finishing(num_blocks(runs - 1, 1),
                           num_blocks(num_packs(args.columns, kTaken<float, whole.value>), kWarp));
      launch("finish_embedding_backward", finish_runs_kernel<whole.value>, {finishing, block, 0, stream}, args, runs);
    });
  });
}

}  // namespace espalier::cuda
