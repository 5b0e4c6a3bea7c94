// Attention's forward pass, tile by tile (Dao et al. 2022), from the tile operations of an instruction set.
//
// For each tile of queries, over the tiles of keys that it sees (S, P transposed as attention_tiles.h says):
//   S = K Q^T;  m' = max(m, S);  P = 2^(S - m');  l = 2^(m - m') l + sum P;  O^T = 2^(m - m') O^T + V^T P
// then O^T / l and the log-sum-exp m + log2 l; a query that sees no key gets 0 and minus infinity. Exponents are to
// base 2: scale and bias carry log2(e). The bias slope (key - query) is taken from the tile's first query on, which
// shifts a query's exponents by a constant that its log-sum-exp shares.
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/internal/attention_head.h"

namespace espalier::kernels {
namespace {

// Keys and values of one group, [key tile] panels.
struct KeyPanels {
  char *key_rows, *value_transposed;

  KeyPanels(const Geometry& g, Carver& carver)
      : key_rows(carver.take<char>(g.key_tiles * g.panel_bytes)),
        value_transposed(carver.take<char>(g.key_tiles * g.panel_bytes)) {}
};

// What one tile of queries needs.
struct QueryBuffers {
  char *rows, *interleaved, *query_columns;
  float *products, *result, *result_rows;
  char* probabilities;
  float *bias, *max, *sum, *rescale;

  QueryBuffers(const Geometry& g, Carver& carver) {
    for (char** panel : {&rows, &interleaved, &query_columns}) *panel = carver.take<char>(g.panel_bytes);
    products = carver.take<float>(kScores * 4);
    probabilities = carver.take<char>(g.score_bytes);
    for (float** sums : {&result, &result_rows}) *sums = carver.take<float>(g.sums_bytes);
    for (float** lane : {&bias, &max, &sum, &rescale}) *lane = carver.take<float>(kTile * 4);
  }
};

// What one group needs.
struct ForwardGroupBuffers {
  KeyPanels keys;
  QueryBuffers queries;

  ForwardGroupBuffers(const Geometry& g, Carver& carver) : keys(g, carver), queries(g, carver) {}
};

void pack_key_tile(const Head& head, int64_t tile, const KeyPanels& keys, const QueryBuffers& buffers) {
  const Geometry& g = head.geometry;
  head.load(g.problem.key, tile, head.num_keys(), keys.key_rows + tile * g.panel_bytes);
  head.load(g.problem.value, tile, head.num_keys(), buffers.rows);
  g.ops.interleave(buffers.rows, g.padded, buffers.interleaved);
  g.ops.transpose(buffers.interleaved, g.padded, keys.value_transposed + tile * g.panel_bytes);
}

void finish_query_tile(const Head& head, int64_t query_tile, const QueryBuffers& buffers) {
  const Geometry& g = head.geometry;
  const QueryTile& queries = head.queries(query_tile);
  for (int64_t lane = 0; lane < kTile; ++lane)
    buffers.rescale[lane] = queries.lane_sees(lane) ? 1.0f / buffers.sum[lane] : 0.0f;
  g.ops.scale_columns(buffers.result, buffers.rescale, g.padded);
  g.ops.untranspose(buffers.result, g.padded, buffers.result_rows);
  head.store(buffers.result_rows, 1.0f, g.problem.result, query_tile, g.problem.num_queries);
  if (g.problem.log_sum_exp == nullptr) return;
  const int64_t present = std::min(kTile, g.problem.num_queries - query_tile * kTile);
  float* const log_sum_exp = head.log_sum_exp(query_tile * kTile);
  for (int64_t lane = 0; lane < present; ++lane) {
    log_sum_exp[lane] = queries.lane_sees(lane) ? buffers.max[lane] + std::log2(buffers.sum[lane])
                                                : -std::numeric_limits<float>::infinity();
  }
}

// Raises the largest logits of a tile's queries, [kTile], by those of a tile of keys.
void raise_max_logits(const Head& head, const QueryTile& queries, int64_t key_tile, const float* products,
                      float* largest) {
  const float scale = head.problem().scale;
  for (int64_t key = 0; key < kTile; ++key) {
    const int32_t position = static_cast<int32_t>(key_tile * kTile + key);
    for (int64_t lane = 0; lane < kTile; ++lane) {
      const float logit = products[key * kTile + lane] * scale;
      const bool is_seen = queries.first[lane] <= position && position <= queries.last[lane];
      largest[lane] = is_seen && logit > largest[lane] ? logit : largest[lane];
    }
  }
}

void write_max_logits(const Head& head, int64_t query_tile, const float* largest) {
  const AttentionProblem& problem = head.problem();
  std::copy_n(largest, std::min(kTile, problem.num_queries - query_tile * kTile),
              head.of_query(problem.max_logits, query_tile * kTile));
}

void forward_query_tile(const Head& head, int64_t query_tile, const KeyPanels& keys, const QueryBuffers& buffers) {
  const Geometry& g = head.geometry;
  head.load(g.problem.query, query_tile, g.problem.num_queries, buffers.rows);
  g.ops.columns(buffers.rows, g.padded, buffers.query_columns);
  std::memset(buffers.bias, 0, kTile * 4);
  std::fill_n(buffers.max, kTile, std::numeric_limits<float>::lowest());
  std::fill_n(buffers.sum, kTile, 0.0f);
  const QueryTile& queries = head.queries(query_tile);
  if (queries.first_tile == queries.end_tile) std::memset(buffers.result, 0, g.sums_bytes);
  float largest[kTile];
  std::fill_n(largest, kTile, -std::numeric_limits<float>::infinity());
  ScoreTile tile = make_score_tile(head, buffers.products, buffers.bias);
  for (int64_t key_tile = queries.first_tile; key_tile < queries.end_tile; ++key_tile) {
    g.ops.multiply(buffers.products, keys.key_rows + key_tile * g.panel_bytes, buffers.query_columns, kTile, kTile,
                   g.padded, false);
    if (g.problem.max_logits != nullptr) raise_max_logits(head, queries, key_tile, buffers.products, largest);
    cap_products(g.problem, buffers.products);
    place(tile, head, queries, key_tile, query_tile, buffers.bias);
    const bool rescaled = g.ops.softmax(tile, buffers.max, buffers.sum, buffers.rescale, buffers.probabilities);
    const bool first = key_tile == queries.first_tile;
    if (rescaled && !first) g.ops.scale_columns(buffers.result, buffers.rescale, g.padded);
    g.ops.multiply(buffers.result, keys.value_transposed + key_tile * g.panel_bytes, buffers.probabilities, g.padded,
                   kTile, kTile, !first);
  }
  if (g.problem.max_logits != nullptr) write_max_logits(head, query_tile, largest);
  finish_query_tile(head, query_tile, buffers);
}

// The groups from `first_group` on, their keys packed by all threads, then their queries taken by tiles.
void forward_shared(const Geometry& g, int64_t first_group) {
  const int64_t num_shared = g.num_groups - first_group, num_heads = num_shared * g.problem.members;
  Carver carver(shared_workspace().reserve(num_shared * bytes_of<KeyPanels>(g)));
  std::vector<KeyPanels> keys;
  for (int64_t i = 0; i < num_shared; ++i) keys.emplace_back(g, carver);
  for_each<QueryBuffers>(g, num_shared * g.key_tiles, [&](int64_t i, const QueryBuffers& buffers) {
    const Head head(g, first_group + i / g.key_tiles, 0);
    const int64_t tile = i % g.key_tiles;
    const Geometry::TileRange seen = g.key_tiles_of(head.row);
    if (seen.first <= tile && tile < seen.end) pack_key_tile(head, tile, keys[i / g.key_tiles], buffers);
  });
  // The last queries first: they see the most keys, and little should be left over for the threads to wait for.
  for_each_in_order<QueryBuffers>(g, num_heads * g.query_tiles, [&](int64_t i, const QueryBuffers& buffers) {
    const int64_t shared = i % num_heads / g.problem.members, member = i % g.problem.members;
    forward_query_tile(Head(g, first_group + shared, member), g.query_tiles - 1 - i / num_heads, keys[shared], buffers);
  });
}

}  // namespace

void attention_forward(const AttentionProblem& problem) {
  const Geometry geometry(problem);
  const int64_t num_whole = num_whole_groups(geometry, problem.members * geometry.query_tiles);
  for_each<ForwardGroupBuffers>(geometry, num_whole, [&](int64_t group, const ForwardGroupBuffers& buffers) {
    const Head first(geometry, group, 0);
    // A window may leave most of a cache unseen, padding the end of a sequence.
    const Geometry::TileRange seen = geometry.key_tiles_of(first.row);
    for (int64_t tile = seen.first; tile < seen.end; ++tile) pack_key_tile(first, tile, buffers.keys, buffers.queries);
    for (int64_t member = 0; member < problem.members; ++member) {
      const Head head(geometry, group, member);
      for (int64_t tile = 0; tile < geometry.query_tiles; ++tile)
        forward_query_tile(head, tile, buffers.keys, buffers.queries);
    }
  });
  if (num_whole < geometry.num_groups) forward_shared(geometry, num_whole);
}

}  // namespace espalier::kernels
