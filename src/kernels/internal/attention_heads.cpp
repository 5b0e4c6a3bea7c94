// Attention of one head, tile by tile (Dao et al. 2022), from the tile operations of an instruction set.
//
// Forward, for each tile of queries, over the tiles of keys that it sees (S, P transposed as attention_tiles.h says):
//   S = K Q^T;  m' = max(m, S);  P = 2^(S - m');  l = 2^(m - m') l + sum P;  O^T = 2^(m - m') O^T + V^T P
// then O^T / l and the log-sum-exp m + log2 l. Backward, for each tile of keys, over the tiles of queries that see it:
//   P = 2^(K Q^T - lse);  dP = V dO^T;  dS = P (dP - D);  dV += P dO;  dK += dS Q;  dQ^T += K^T dS
// D = rowsum(dO O). Exponents are to base 2: scale and bias carry log2(e). The bias slope (key - query) is taken from
// the tile's first query on, which shifts a query's exponents by a constant that its log-sum-exp shares.
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <vector>

#include "kernels/dispatch.h"
#include "kernels/internal/attention_tiles.h"

namespace espalier::kernels {
namespace {

constexpr float kLog2E = 1.44269504088896340736f;
constexpr int64_t kScores = kTile * kTile;

int64_t num_tiles(int64_t positions) { return (positions + kTile - 1) / kTile; }

// Panels and tiles of one thread, 64-byte aligned, kept from head to head and from call to call: fresh memory would
// cost a page fault for every 4 KiB, as much as the computation at short lengths.
class Workspace {
 public:
  // Room for `count` blocks; pointers from before are invalid.
  void resize(int64_t bytes) {
    if (bytes <= capacity_) return;
    memory_.reset(static_cast<char*>(::operator new(bytes, kAlignment)));
    capacity_ = bytes;
  }
  char* data() const { return memory_.get(); }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(char* p) const { ::operator delete(p, kAlignment); }
  };
  std::unique_ptr<char, Free> memory_;
  int64_t capacity_ = 0;
};

thread_local Workspace workspace;

// Hands out consecutive aligned parts: measure with memory = nullptr, then run with the real address.
class Carver {
 public:
  explicit Carver(char* memory) : memory_(memory) {}
  template <class T>
  T* take(int64_t bytes) {
    char* const part = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += (bytes + 63) / 64 * 64;
    return reinterpret_cast<T*>(part);
  }
  int64_t used() const { return used_; }

 private:
  char* memory_;
  int64_t used_ = 0;
};

// What all heads of a problem share.
struct Geometry {
  const AttentionProblem& problem;
  const TileOps& ops;
  int64_t padded;       // head size, rounded up
  int64_t panel_bytes;  // of elements
  int64_t sums_bytes;   // of a panel of fp32 sums
  int64_t score_bytes;  // of a tile of elements
  int64_t num_keys, query_tiles, key_tiles;

  explicit Geometry(const AttentionProblem& p)
      : problem(p),
        ops(tile_ops(p.type)),
        padded((p.head_size + kFeatureStep - 1) / kFeatureStep * kFeatureStep),
        panel_bytes(kTile * padded * ops.element_bytes),
        sums_bytes(kTile * padded * 4),
        score_bytes(kScores * ops.element_bytes),
        num_keys(p.first_query + p.num_queries),
        query_tiles(num_tiles(p.num_queries)),
        key_tiles(num_tiles(num_keys)) {}
};

// One head of one row of the batch.
struct Head {
  const Geometry& geometry;
  int64_t row, head;

  const AttentionProblem& problem() const { return geometry.problem; }
  char* at(const AttentionOperand& operand, int64_t position) const {
    const int64_t value_bytes = problem().type == AttentionType::kFloat ? 4 : 2;
    return static_cast<char*>(operand.data) +
           value_bytes * (row * operand.row_stride + head * operand.head_stride + position * operand.position_stride);
  }
  // Tile `tile` of an operand of `positions` positions, as a panel in rows.
  void load(const AttentionOperand& operand, int64_t tile, int64_t positions, void* rows) const {
    geometry.ops.load_rows(problem().type, at(operand, tile * kTile), operand.position_stride,
                           std::min(kTile, positions - tile * kTile), problem().head_size, geometry.padded, rows);
  }
  void store(const float* source, float factor, const AttentionOperand& operand, int64_t tile,
             int64_t positions) const {
    geometry.ops.store_rows(problem().type, source, geometry.padded, factor, std::min(kTile, positions - tile * kTile),
                            problem().head_size, at(operand, tile * kTile), operand.position_stride);
  }
  float* log_sum_exp(int64_t query) const {
    return problem().log_sum_exp + (row * problem().heads + head) * problem().num_queries + query;
  }
};

// What the queries of a tile see.
struct QueryTile {
  alignas(64) int32_t first[kTile], last[kTile];  // keys; none for queries beyond the end
  int64_t min_first, max_first, min_last, max_last;

  QueryTile(const AttentionProblem& problem, int64_t row, int64_t tile) {
    min_first = min_last = std::numeric_limits<int64_t>::max();
    max_first = max_last = 0;
    for (int64_t lane = 0; lane < kTile; ++lane) {
      const int64_t query = tile * kTile + lane;
      if (query >= problem.num_queries) {
        first[lane] = 0;
        last[lane] = -1;
        min_last = -1;
        continue;
      }
      first[lane] = static_cast<int32_t>(first_visible_key(problem, row, query));
      last[lane] = static_cast<int32_t>(problem.first_query + query);
      min_first = std::min<int64_t>(min_first, first[lane]);
      max_first = std::max<int64_t>(max_first, first[lane]);
      min_last = std::min<int64_t>(min_last, last[lane]);
      max_last = std::max<int64_t>(max_last, last[lane]);
    }
  }
  int64_t first_tile() const { return min_first / kTile; }
  int64_t last_tile() const { return max_last / kTile; }
  // Whether some query does not see some key of the tile.
  bool cuts(int64_t key_tile) const { return key_tile * kTile < max_first || key_tile * kTile + kTile - 1 > min_last; }
};

// The tile of scores of a head, but for its place.
ScoreTile make_score_tile(const Head& head, const float* products, const float* bias) {
  const AttentionProblem& problem = head.problem();
  ScoreTile tile;
  tile.products = products;
  tile.scale = problem.scale * kLog2E;
  tile.bias = bias;
  if (problem.dropout) {
    const uint64_t sample = static_cast<uint64_t>(problem.sample_numbers[head.row]);
    tile.dropout = true;
    tile.site = problem.key_of_site;
    tile.head_word =
        static_cast<uint32_t>(problem.first_head + head.head) + (static_cast<uint32_t>(sample >> 32) << 16);
    tile.sample_word = static_cast<uint32_t>(sample);
    tile.drop_below = problem.drop_below;
    tile.keep_scale = problem.keep_scale;
  }
  return tile;
}

// Puts the tile at (key tile, query tile) and writes its bias.
void place(ScoreTile& tile, const Head& head, const QueryTile& queries, int64_t key_tile, int64_t query_tile,
           float* bias) {
  const AttentionProblem& problem = head.problem();
  const int64_t key0 = key_tile * kTile, query0 = problem.first_query + query_tile * kTile;
  tile.key0 = static_cast<int32_t>(key0);
  tile.query0 = static_cast<uint32_t>(query0);
  tile.first = queries.first;
  tile.last = queries.last;
  tile.masked = queries.cuts(key_tile);
  if (problem.slopes == nullptr) return;
  const float slope = problem.slopes[head.head] * kLog2E;
  for (int64_t key = 0; key < kTile; ++key) bias[key] = slope * static_cast<float>(key0 + key - query0);
}

// ---- forward

struct ForwardBuffers {
  char *key_rows, *value_transposed;  // [key tile] panels
  char *rows, *interleaved, *query_columns;
  float *products, *result, *result_rows;
  char* probabilities;
  float *bias, *max, *sum, *rescale;

  ForwardBuffers(const Geometry& g, Carver& carver) {
    key_rows = carver.take<char>(g.key_tiles * g.panel_bytes);
    value_transposed = carver.take<char>(g.key_tiles * g.panel_bytes);
    for (char** panel : {&rows, &interleaved, &query_columns}) *panel = carver.take<char>(g.panel_bytes);
    products = carver.take<float>(kScores * 4);
    probabilities = carver.take<char>(g.score_bytes);
    for (float** sums : {&result, &result_rows}) *sums = carver.take<float>(g.sums_bytes);
    for (float** lane : {&bias, &max, &sum, &rescale}) *lane = carver.take<float>(kTile * 4);
  }
};

void finish_query_tile(const Head& head, int64_t query_tile, const ForwardBuffers& buffers) {
  const Geometry& g = head.geometry;
  for (int64_t lane = 0; lane < kTile; ++lane) buffers.rescale[lane] = 1.0f / buffers.sum[lane];
  g.ops.scale_columns(buffers.result, buffers.rescale, g.padded);
  g.ops.untranspose(buffers.result, g.padded, buffers.result_rows);
  head.store(buffers.result_rows, 1.0f, g.problem.result, query_tile, g.problem.num_queries);
  if (g.problem.log_sum_exp == nullptr) return;
  const int64_t present = std::min(kTile, g.problem.num_queries - query_tile * kTile);
  float* const log_sum_exp = head.log_sum_exp(query_tile * kTile);
  for (int64_t lane = 0; lane < present; ++lane) {
    log_sum_exp[lane] = buffers.max[lane] + std::log2(buffers.sum[lane]);
  }
}

void forward_query_tile(const Head& head, int64_t query_tile, const ForwardBuffers& buffers) {
  const Geometry& g = head.geometry;
  head.load(g.problem.query, query_tile, g.problem.num_queries, buffers.rows);
  g.ops.columns(buffers.rows, g.padded, buffers.query_columns);
  std::fill_n(buffers.max, kTile, std::numeric_limits<float>::lowest());
  std::fill_n(buffers.sum, kTile, 0.0f);
  const QueryTile queries(g.problem, head.row, query_tile);
  ScoreTile tile = make_score_tile(head, buffers.products, buffers.bias);
  for (int64_t key_tile = queries.first_tile(); key_tile <= queries.last_tile(); ++key_tile) {
    g.ops.multiply(buffers.products, buffers.key_rows + key_tile * g.panel_bytes, buffers.query_columns, kTile, kTile,
                   g.padded, false);
    place(tile, head, queries, key_tile, query_tile, buffers.bias);
    const bool rescaled = g.ops.softmax(tile, buffers.max, buffers.sum, buffers.rescale, buffers.probabilities);
    const bool first = key_tile == queries.first_tile();
    if (rescaled && !first) g.ops.scale_columns(buffers.result, buffers.rescale, g.padded);
    g.ops.multiply(buffers.result, buffers.value_transposed + key_tile * g.panel_bytes, buffers.probabilities, g.padded,
                   kTile, kTile, !first);
  }
  finish_query_tile(head, query_tile, buffers);
}

void forward_head(const Head& head, const ForwardBuffers& buffers) {
  const Geometry& g = head.geometry;
  for (int64_t tile = 0; tile < g.key_tiles; ++tile) {
    head.load(g.problem.key, tile, g.num_keys, buffers.key_rows + tile * g.panel_bytes);
    head.load(g.problem.value, tile, g.num_keys, buffers.rows);
    g.ops.interleave(buffers.rows, g.padded, buffers.interleaved);
    g.ops.transpose(buffers.interleaved, g.padded, buffers.value_transposed + tile * g.panel_bytes);
  }
  for (int64_t query_tile = 0; query_tile < g.query_tiles; ++query_tile) forward_query_tile(head, query_tile, buffers);
}

// ---- backward

struct BackwardBuffers {
  char *query_columns, *query_interleaved, *d_result_columns, *d_result_interleaved;  // [query tile] panels
  float* d_query;                                                                     // [query tile] sums [F][kTile]
  float *log_sum_exp, *row_dots;                                                      // [query tile][kTile]
  char *key_rows, *key_transposed, *value_rows, *rows, *other_rows;
  float *products, *d_probabilities, *d_key, *d_value, *sums;
  char *probabilities, *d_scores, *d_scores_interleaved;
  float* bias;

  BackwardBuffers(const Geometry& g, Carver& carver) {
    for (char** panels : {&query_columns, &query_interleaved, &d_result_columns, &d_result_interleaved}) {
      *panels = carver.take<char>(g.query_tiles * g.panel_bytes);
    }
    d_query = carver.take<float>(g.query_tiles * g.sums_bytes);
    for (float** lanes : {&log_sum_exp, &row_dots}) *lanes = carver.take<float>(g.query_tiles * kTile * 4);
    for (char** panel : {&key_rows, &key_transposed, &value_rows, &rows, &other_rows}) {
      *panel = carver.take<char>(g.panel_bytes);
    }
    for (float** scores : {&products, &d_probabilities}) *scores = carver.take<float>(kScores * 4);
    for (char** scores : {&probabilities, &d_scores, &d_scores_interleaved}) *scores = carver.take<char>(g.score_bytes);
    for (float** panel : {&d_key, &d_value, &sums}) *panel = carver.take<float>(g.sums_bytes);
    bias = carver.take<float>(kTile * 4);
  }
};

void load_query_tile(const Head& head, const AttentionGradients& gradients, int64_t tile,
                     const BackwardBuffers& buffers) {
  const Geometry& g = head.geometry;
  const int64_t queries = g.problem.num_queries, offset = tile * g.panel_bytes;
  head.load(g.problem.query, tile, queries, buffers.rows);
  g.ops.columns(buffers.rows, g.padded, buffers.query_columns + offset);
  g.ops.interleave(buffers.rows, g.padded, buffers.query_interleaved + offset);
  head.load(gradients.result, tile, queries, buffers.rows);
  g.ops.columns(buffers.rows, g.padded, buffers.d_result_columns + offset);
  g.ops.interleave(buffers.rows, g.padded, buffers.d_result_interleaved + offset);
  head.load(g.problem.result, tile, queries, buffers.other_rows);
  g.ops.row_dots(buffers.rows, buffers.other_rows, g.padded, buffers.row_dots + tile * kTile);
  const int64_t present = std::min(kTile, queries - tile * kTile);
  std::copy_n(head.log_sum_exp(tile * kTile), present, buffers.log_sum_exp + tile * kTile);
  std::fill(buffers.log_sum_exp + tile * kTile + present, buffers.log_sum_exp + (tile + 1) * kTile, 0.0f);
}

void backward_key_tile(const Head& head, const std::vector<QueryTile>& queries, int64_t key_tile,
                       const BackwardBuffers& buffers) {
  const Geometry& g = head.geometry;
  ScoreTile tile = make_score_tile(head, buffers.products, buffers.bias);
  std::memset(buffers.d_key, 0, g.sums_bytes);
  std::memset(buffers.d_value, 0, g.sums_bytes);
  for (int64_t query_tile = 0; query_tile < g.query_tiles; ++query_tile) {
    if (key_tile < queries[query_tile].first_tile() || key_tile > queries[query_tile].last_tile()) continue;
    const int64_t offset = query_tile * g.panel_bytes;
    g.ops.multiply(buffers.products, buffers.key_rows, buffers.query_columns + offset, kTile, kTile, g.padded, false);
    g.ops.multiply(buffers.d_probabilities, buffers.value_rows, buffers.d_result_columns + offset, kTile, kTile,
                   g.padded, false);
    place(tile, head, queries[query_tile], key_tile, query_tile, buffers.bias);
    g.ops.softmax_backward(tile, buffers.d_probabilities, buffers.log_sum_exp + query_tile * kTile,
                           buffers.row_dots + query_tile * kTile, buffers.probabilities, buffers.d_scores,
                           buffers.d_scores_interleaved);
    const char* const d_scores = g.ops.element_bytes == 4 ? buffers.d_scores : buffers.d_scores_interleaved;
    g.ops.multiply(buffers.d_value, buffers.probabilities, buffers.d_result_interleaved + offset, kTile, g.padded,
                   kTile, true);
    g.ops.multiply(buffers.d_key, buffers.d_scores, buffers.query_interleaved + offset, kTile, g.padded, kTile, true);
    g.ops.multiply(buffers.d_query + query_tile * kTile * g.padded, buffers.key_transposed, d_scores, g.padded, kTile,
                   kTile, true);
  }
}

void backward_head(const Head& head, const AttentionGradients& gradients, const BackwardBuffers& buffers) {
  const Geometry& g = head.geometry;
  std::vector<QueryTile> queries;
  for (int64_t tile = 0; tile < g.query_tiles; ++tile) {
    queries.emplace_back(g.problem, head.row, tile);
    load_query_tile(head, gradients, tile, buffers);
  }
  std::memset(buffers.d_query, 0, g.query_tiles * g.sums_bytes);
  std::memset(buffers.bias, 0, kTile * 4);
  for (int64_t tile = 0; tile < g.key_tiles; ++tile) {
    head.load(g.problem.key, tile, g.num_keys, buffers.key_rows);
    g.ops.interleave(buffers.key_rows, g.padded, buffers.rows);
    g.ops.transpose(buffers.rows, g.padded, buffers.key_transposed);
    head.load(g.problem.value, tile, g.num_keys, buffers.value_rows);
    backward_key_tile(head, queries, tile, buffers);
    head.store(buffers.d_key, g.problem.scale, gradients.key, tile, g.num_keys);
    head.store(buffers.d_value, 1.0f, gradients.value, tile, g.num_keys);
  }
  for (int64_t tile = 0; tile < g.query_tiles; ++tile) {
    g.ops.untranspose(buffers.d_query + tile * kTile * g.padded, g.padded, buffers.sums);
    head.store(buffers.sums, g.problem.scale, gradients.query, tile, g.problem.num_queries);
  }
}

// Calls body(Head, buffers) for every head of every row, in parallel, each thread with buffers of its own.
template <class Buffers, class Body>
void for_each_head(const AttentionProblem& problem, const Body& body) {
  const Geometry geometry(problem);
  at::parallel_for(0, problem.batch * problem.heads, 1, [&](int64_t begin, int64_t end) {
    Carver measure(nullptr);
    Buffers{geometry, measure};
    workspace.resize(measure.used());
    Carver carver(workspace.data());
    const Buffers buffers(geometry, carver);
    geometry.ops.begin();
    for (int64_t pair = begin; pair < end; ++pair) {
      body(Head{geometry, pair / problem.heads, pair % problem.heads}, buffers);
    }
    geometry.ops.end();
  });
}

}  // namespace

const TileOps& tile_ops(AttentionType type) {
  switch (cpu_isa()) {
    case CpuIsa::kAmx:
      if (type == AttentionType::kBFloat16) return kAmxTileOps;
      return kAvx512TileOps;
    case CpuIsa::kAvx512Bf16:
      if (type == AttentionType::kBFloat16) return kAvx512Bf16TileOps;
      return kAvx512TileOps;
    case CpuIsa::kAvx512: return kAvx512TileOps;
    case CpuIsa::kAvx2: return kAvx2TileOps;
    case CpuIsa::kGeneric: return kGenericTileOps;
  }
  return kGenericTileOps;
}

void attention_forward(const AttentionProblem& problem) {
  for_each_head<ForwardBuffers>(problem, [](const Head& head, const ForwardBuffers& buffers) {
    std::memset(buffers.bias, 0, kTile * 4);
    forward_head(head, buffers);
  });
}

void attention_backward(const AttentionProblem& problem, const AttentionGradients& gradients) {
  for_each_head<BackwardBuffers>(
      problem, [&](const Head& head, const BackwardBuffers& buffers) { backward_head(head, gradients, buffers); });
}

}  // namespace espalier::kernels
