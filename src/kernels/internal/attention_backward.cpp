// Attention's backward pass, tile by tile (Dao et al. 2022), from the tile operations of an instruction set.
//
// For each tile of keys, over the tiles of queries that see it (S, P transposed as attention_tiles.h says):
//   P = 2^(K Q^T - lse);  dP = V dO^T;  dS = P (dP - D);  dV += P dO;  dK += dS Q;  dQ^T += K^T dS
// D = rowsum(dO O). dK and dV of a group are sums over its query heads, one head after another. Threads that share a
// group take its tiles of keys in turn; each adds to a tile of dQ when the one that has the tile of keys before its own
// has done so. The gradient of a bias by distance is the sum of dS over all pairs of that distance: of each tile, then
// of the tiles of one tile of keys, then of those, in the same turn, then of the rows of the batch.
#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/internal/attention_head.h"

namespace espalier::kernels {
namespace {

// Queries and gradients of results of one head, and the sums of its queries' gradients.
struct QueryPanels {
  char *query_columns, *query_interleaved, *d_result_columns, *d_result_interleaved;  // [query tile] panels
  float* d_query;                                                                     // [query tile] sums [F][kTile]
  float *log_sum_exp, *row_dots;                                                      // [query tile][kTile]

  QueryPanels(const Geometry& g, Carver& carver) {
    for (char** panels : {&query_columns, &query_interleaved, &d_result_columns, &d_result_interleaved}) {
      *panels = carver.take<char>(g.query_tiles * g.panel_bytes);
    }
    d_query = carver.take<float>(g.query_tiles * g.sums_bytes);
    for (float** lanes : {&log_sum_exp, &row_dots}) *lanes = carver.take<float>(g.query_tiles * kTile * 4);
  }
};

// What one tile of keys needs.
struct KeyBuffers {
  char *key_rows, *key_transposed, *value_rows, *rows, *other_rows;
  float *products, *d_probabilities, *sums;
  char *probabilities, *d_scores, *d_scores_interleaved;
  float* bias;
  // Sums of dS by distance, where there is a bias by distance: of one tile as softmax_backward writes them, and of all
  // tiles of queries, [query tiles + 1][kTile], by kTile - 1 + query - (key - first key of the tile).
  float *tile_distances, *distances;

  KeyBuffers(const Geometry& g, Carver& carver) {
    for (char** panel : {&key_rows, &key_transposed, &value_rows, &rows, &other_rows}) {
      *panel = carver.take<char>(g.panel_bytes);
    }
    for (float** scores : {&products, &d_probabilities}) *scores = carver.take<float>(kScores * 4);
    for (char** scores : {&probabilities, &d_scores, &d_scores_interleaved}) *scores = carver.take<char>(g.score_bytes);
    sums = carver.take<float>(g.sums_bytes);
    bias = carver.take<float>(kTile * 4);
    const int64_t of_distances = g.problem.relative_bias != nullptr ? kTile * 4 : 0;
    tile_distances = carver.take<float>(2 * of_distances);
    distances = carver.take<float>((g.query_tiles + 1) * of_distances);
  }
};

// Sums of one tile of keys over the query heads of its group.
struct KeySums {
  float *d_key, *d_value;

  KeySums(const Geometry& g, Carver& carver)
      : d_key(carver.take<float>(g.sums_bytes)), d_value(carver.take<float>(g.sums_bytes)) {}
};

// What one group needs that one thread has: the panels of one head at a time, and the sums of all tiles of keys from
// head to head. A group of one head is done with a tile of keys before the next.
struct BackwardGroupBuffers {
  QueryPanels queries;
  KeyBuffers keys;
  char* sums;
  int64_t tile_bytes, kept_tiles;

  BackwardGroupBuffers(const Geometry& g, Carver& carver)
      : queries(g, carver), keys(g, carver), tile_bytes(2 * g.sums_bytes) {
    kept_tiles = g.problem.members > 1 ? g.key_tiles : 1;
    sums = carver.take<char>(kept_tiles * tile_bytes);
  }
  KeySums key_sums(const Geometry& g, int64_t key_tile) const {
    Carver carver(sums + key_tile % kept_tiles * tile_bytes);
    return KeySums(g, carver);
  }
};

// What one tile of keys of a shared group needs.
struct SharedBuffers {
  KeyBuffers keys;
  KeySums sums;

  SharedBuffers(const Geometry& g, Carver& carver) : keys(g, carver), sums(g, carver) {}
};

// Who may add to each tile of a head's dQ, and, by the number after the last tile's, to its sums by distance: the tile
// of keys whose turn it is.
class Turns {
 public:
  explicit Turns(const Head& head) : turns_(new std::atomic<int32_t>[head.geometry.query_tiles + 1]) {
    for (int64_t tile = 0; tile < head.geometry.query_tiles; ++tile)
      turns_[tile] = static_cast<int32_t>(head.queries(tile).first_tile);
    turns_[head.geometry.query_tiles] = 0;
  }
  // Sleeps if it takes long: the other thread may be waiting for the processor that this one has.
  void wait(int64_t query_tile, int64_t key_tile) const {
    const std::atomic<int32_t>& turn = turns_[query_tile];
    for (int32_t now = turn; now != key_tile; now = turn) turn.wait(now);
  }
  void pass(int64_t query_tile, int64_t key_tile) const {
    turns_[query_tile] = static_cast<int32_t>(key_tile + 1);
    turns_[query_tile].notify_all();
  }

 private:
  std::unique_ptr<std::atomic<int32_t>[]> turns_;
};

// Where the gradients of a problem go, and the sums of each row and head by distance: [row][query head][distance].
struct Outputs {
  const AttentionGradients& gradients;
  std::vector<float> distances;  // empty: not wanted

  Outputs(const AttentionProblem& problem, const AttentionGradients& to) : gradients(to) {
    if (to.relative_bias != nullptr) distances.assign(problem.batch * problem.heads() * problem.num_distances(), 0.0f);
  }
  // At distance 0; null: not wanted.
  float* distances_of(const Head& head) {
    const AttentionProblem& problem = head.problem();
    if (distances.empty()) return nullptr;
    return distances.data() + (head.row * problem.heads() + head.number()) * problem.num_distances() +
           problem.relative_reach;
  }
};

// One head's way through the backward pass.
struct HeadGradients {
  Head head;
  const AttentionGradients& gradients;
  QueryPanels panels;
  float* distances;
  std::unique_ptr<Turns> turns;  // none where one thread has the whole group

  HeadGradients(const Head& head, Outputs& outputs, const QueryPanels& panels)
      : head(head), gradients(outputs.gradients), panels(panels), distances(outputs.distances_of(head)) {}

  void load_query_tile(int64_t tile, const KeyBuffers& buffers) const;
  // The group's heads must come in their order: the first clears the sums, the last writes them out.
  void add_key_tile(int64_t key_tile, const KeyBuffers& buffers, const KeySums& sums) const;

 private:
  void load_key_tile(int64_t tile, const KeyBuffers& buffers) const;
  void add_to_query_tile(int64_t key_tile, int64_t query_tile, const KeyBuffers& buffers) const;
  void add_to_distances(int64_t key_tile, const KeyBuffers& buffers) const;
};

void HeadGradients::load_query_tile(int64_t tile, const KeyBuffers& buffers) const {
  const Geometry& g = head.geometry;
  const int64_t num_queries = g.problem.num_queries, offset = tile * g.panel_bytes;
  const QueryTile& queries = head.queries(tile);
  std::memset(panels.d_query + tile * kTile * g.padded, 0, g.sums_bytes);
  if (queries.first_tile == queries.end_tile) {  // no tile of keys will come to write these out
    head.store(panels.d_query + tile * kTile * g.padded, 1.0f, gradients.query, tile, num_queries);
    return;
  }
  head.load(g.problem.query, tile, num_queries, buffers.rows);
  g.ops.columns(buffers.rows, g.padded, panels.query_columns + offset);
  g.ops.interleave(buffers.rows, g.padded, panels.query_interleaved + offset);
  head.load(gradients.result, tile, num_queries, buffers.rows);
  g.ops.columns(buffers.rows, g.padded, panels.d_result_columns + offset);
  g.ops.interleave(buffers.rows, g.padded, panels.d_result_interleaved + offset);
  head.load(g.problem.result, tile, num_queries, buffers.other_rows);
  g.ops.row_dots(buffers.rows, buffers.other_rows, g.padded, panels.row_dots + tile * kTile);
  for (int64_t lane = 0; lane < kTile; ++lane)
    panels.log_sum_exp[tile * kTile + lane] = queries.lane_sees(lane) ? *head.log_sum_exp(tile * kTile + lane) : 0.0f;
}

void HeadGradients::load_key_tile(int64_t tile, const KeyBuffers& buffers) const {
  const Geometry& g = head.geometry;
  head.load(g.problem.key, tile, head.num_keys(), buffers.key_rows);
  g.ops.interleave(buffers.key_rows, g.padded, buffers.rows);
  g.ops.transpose(buffers.rows, g.padded, buffers.key_transposed);
  head.load(g.problem.value, tile, head.num_keys(), buffers.value_rows);
}

// dQ of one tile from the scores' gradients in `buffers`; written out by the last tile of keys that it sees.
void HeadGradients::add_to_query_tile(int64_t key_tile, int64_t query_tile, const KeyBuffers& buffers) const {
  const Geometry& g = head.geometry;
  const char* const d_scores = g.ops.element_bytes == 4 ? buffers.d_scores : buffers.d_scores_interleaved;
  float* const d_query = panels.d_query + query_tile * kTile * g.padded;
  if (turns) turns->wait(query_tile, key_tile);
  g.ops.multiply(d_query, buffers.key_transposed, d_scores, g.padded, kTile, kTile, true);
  if (key_tile + 1 == head.queries(query_tile).end_tile) {
    g.ops.untranspose(d_query, g.padded, buffers.sums);
    head.store(buffers.sums, g.problem.scale, gradients.query, query_tile, g.problem.num_queries);
  }
  if (turns) turns->pass(query_tile, key_tile);
}

// The sums of one tile of keys.
void HeadGradients::add_to_distances(int64_t key_tile, const KeyBuffers& buffers) const {
  const Geometry& g = head.geometry;
  if (turns) turns->wait(g.query_tiles, key_tile);
  const int64_t farthest = key_tile * kTile + kTile - 1, reach = g.problem.relative_reach;
  const int64_t nearest = farthest - (g.query_tiles + 1) * kTile + 1;
  // Beyond the reach are the places of positions that do not exist.
  for (int64_t distance = std::max(nearest, -reach); distance <= std::min(farthest, reach); ++distance)
    distances[distance] += buffers.distances[farthest - distance];
  if (turns) turns->pass(g.query_tiles, key_tile);
}

void HeadGradients::add_key_tile(int64_t key_tile, const KeyBuffers& buffers, const KeySums& sums) const {
  const Geometry& g = head.geometry;
  const Geometry::TileRange seen = g.key_tiles_of(head.row);
  if (seen.first <= key_tile && key_tile < seen.end) load_key_tile(key_tile, buffers);
  if (head.member == 0) {
    for (float* sum : {sums.d_key, sums.d_value}) std::memset(sum, 0, g.sums_bytes);
  }
  std::memset(buffers.bias, 0, kTile * 4);
  if (distances != nullptr) std::memset(buffers.distances, 0, (g.query_tiles + 1) * kTile * 4);
  ScoreTile tile = make_score_tile(head, buffers.products, buffers.bias);
  tile.relative_sums = buffers.tile_distances;
  for (int64_t query_tile = 0; query_tile < g.query_tiles; ++query_tile) {
    const QueryTile& queries = head.queries(query_tile);
    if (!queries.sees(key_tile)) continue;
    const int64_t offset = query_tile * g.panel_bytes;
    g.ops.multiply(buffers.products, buffers.key_rows, panels.query_columns + offset, kTile, kTile, g.padded, false);
    g.ops.multiply(buffers.d_probabilities, buffers.value_rows, panels.d_result_columns + offset, kTile, kTile,
                   g.padded, false);
    cap_products(g.problem, buffers.products);
    place(tile, head, queries, key_tile, query_tile, buffers.bias);
    g.ops.softmax_backward(tile, buffers.d_probabilities, panels.log_sum_exp + query_tile * kTile,
                           panels.row_dots + query_tile * kTile, buffers.probabilities, buffers.d_scores,
                           buffers.d_scores_interleaved);
    if (distances != nullptr)
      for (int64_t i = 0; i < 2 * kTile; ++i) buffers.distances[query_tile * kTile + i] += buffers.tile_distances[i];
    g.ops.multiply(sums.d_value, buffers.probabilities, panels.d_result_interleaved + offset, kTile, g.padded, kTile,
                   true);
    g.ops.multiply(sums.d_key, buffers.d_scores, panels.query_interleaved + offset, kTile, g.padded, kTile, true);
    add_to_query_tile(key_tile, query_tile, buffers);
  }
  if (distances != nullptr) add_to_distances(key_tile, buffers);
  if (head.member + 1 < g.problem.members) return;
  head.store(sums.d_key, g.problem.scale, gradients.key, key_tile, head.num_keys());
  head.store(sums.d_value, 1.0f, gradients.value, key_tile, head.num_keys());
}

// The groups from `first_group` on, tile by tile on all threads.
void backward_shared(const Geometry& g, Outputs& outputs, int64_t first_group) {
  const int64_t num_shared = g.num_groups - first_group, members = g.problem.members;
  Carver carver(shared_workspace().reserve(num_shared * members * bytes_of<QueryPanels>(g)));
  std::vector<HeadGradients> heads;
  for (int64_t i = 0; i < num_shared * members; ++i) {
    heads.emplace_back(Head(g, first_group + i / members, i % members), outputs, QueryPanels(g, carver));
    heads.back().turns = std::make_unique<Turns>(heads.back().head);
  }
  for_each<KeyBuffers>(g, num_shared * members * g.query_tiles, [&](int64_t i, const KeyBuffers& buffers) {
    heads[i / g.query_tiles].load_query_tile(i % g.query_tiles, buffers);
  });
  // A group's tiles of keys begin in their order, so that a tile waits only for tiles that are under way.
  for_each_in_order<SharedBuffers>(g, num_shared * g.key_tiles, [&](int64_t i, const SharedBuffers& buffers) {
    for (int64_t member = 0; member < members; ++member) {
      heads[i % num_shared * members + member].add_key_tile(i / num_shared, buffers.keys, buffers.sums);
    }
  });
}

// The gradient of the bias by distance: the sums of all rows.
void sum_rows(const AttentionProblem& problem, const std::vector<float>& rows, float* sum) {
  const int64_t count = problem.heads() * problem.num_distances();
  at::parallel_for(0, count, kScores, [&](int64_t begin, int64_t end) {
    std::copy(rows.data() + begin, rows.data() + end, sum + begin);
    for (int64_t row = 1; row < problem.batch; ++row)
      for (int64_t i = begin; i < end; ++i) sum[i] += rows[row * count + i];
  });
}

}  // namespace

void attention_backward(const AttentionProblem& problem, const AttentionGradients& gradients) {
  const Geometry geometry(problem);
  Outputs outputs(problem, gradients);
  const int64_t num_whole = num_whole_groups(geometry, geometry.key_tiles);
  for_each<BackwardGroupBuffers>(geometry, num_whole, [&](int64_t group, const BackwardGroupBuffers& buffers) {
    for (int64_t member = 0; member < problem.members; ++member) {
      const HeadGradients head(Head(geometry, group, member), outputs, buffers.queries);
      for (int64_t tile = 0; tile < geometry.query_tiles; ++tile) head.load_query_tile(tile, buffers.keys);
      for (int64_t tile = 0; tile < geometry.key_tiles; ++tile) {
        head.add_key_tile(tile, buffers.keys, buffers.key_sums(geometry, tile));
      }
    }
  });
  if (num_whole < geometry.num_groups) backward_shared(geometry, outputs, num_whole);
  if (gradients.relative_bias != nullptr) sum_rows(problem, outputs.distances, gradients.relative_bias);
}

}  // namespace espalier::kernels
