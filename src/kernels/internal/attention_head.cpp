#include "kernels/internal/attention_head.h"

#include <limits>

#include "base/cpu_isa.h"
#include "kernels/internal/row_dispatch.h"

namespace espalier::kernels {
namespace {
constexpr float kLog2E = 1.44269504088896340736f;
// Groups with fewer tiles are not worth the meetings of threads that sharing takes.
constexpr int64_t kSharedTiles = 8;
}  // namespace

Geometry::Geometry(const AttentionProblem& p)
    : problem(p),
      ops(tile_ops(p.type)),
      padded((p.head_size + kFeatureStep - 1) / kFeatureStep * kFeatureStep),
      panel_bytes(kTile * padded * ops.element_bytes),
      sums_bytes(kTile * padded * 4),
      score_bytes(kScores * ops.element_bytes),
      query_tiles(num_tiles(p.num_queries)),
      key_tiles(num_tiles(p.num_keys)),
      num_groups(p.batch * p.groups) {
  queries_.reserve(p.batch * query_tiles);
  for (int64_t row = 0; row < p.batch; ++row) {
    TileRange seen{key_tiles, 0};
    for (int64_t tile = 0; tile < query_tiles; ++tile) {
      const QueryTile& queries = queries_.emplace_back(p, row, tile);
      if (queries.first_tile == queries.end_tile) continue;
      seen = {std::min(seen.first, queries.first_tile), std::max(seen.end, queries.end_tile)};
    }
    seen_.push_back(seen);
  }
  if (p.relative_bias != nullptr) reverse_relative_bias();
}

void Geometry::reverse_relative_bias() {
  const AttentionProblem& p = problem;
  int64_t lowest = first_query(p, 0), highest = lowest;  // position of query 0 of a row
  for (int64_t row = 1; row < p.batch; ++row) {
    lowest = std::min(lowest, first_query(p, row));
    highest = std::max(highest, first_query(p, row));
  }
  farthest_ = key_tiles * kTile - 1 - lowest;
  const int64_t nearest = -(highest + query_tiles * kTile - 1);
  relative_count_ = farthest_ - nearest + 1;
  relative_.assign(p.heads() * relative_count_, 0.0f);
  const int64_t begin = std::max(nearest, -p.relative_reach), end = std::min(farthest_, p.relative_reach);
  for (int64_t head = 0; head < p.heads(); ++head) {
    const float* const bias = relative_bias_of(p, head);
    float* const reversed = relative_.data() + head * relative_count_ + farthest_;
    const float slope = p.slopes != nullptr ? p.slopes[head] : 0.0f;
    for (int64_t distance = begin; distance <= end; ++distance)
      reversed[-distance] = (bias[distance] + slope * static_cast<float>(distance)) * kLog2E;
  }
}

QueryTile::QueryTile(const AttentionProblem& problem, int64_t row, int64_t tile) {
  int64_t min_first = std::numeric_limits<int64_t>::max(), max_last = -1;
  max_first = 0;
  min_last = std::numeric_limits<int64_t>::max();
  for (int64_t lane = 0; lane < kTile; ++lane) {
    const int64_t query = tile * kTile + lane;
    VisibleKeys keys{0, -1};
    if (query < problem.num_queries) keys = visible_keys(problem, row, query);
    if (keys.none()) {
      first[lane] = 0;
      last[lane] = -1;
      min_last = -1;
      continue;
    }
    first[lane] = static_cast<int32_t>(keys.first);
    last[lane] = static_cast<int32_t>(keys.last);
    min_first = std::min(min_first, keys.first);
    max_first = std::max(max_first, keys.first);
    min_last = std::min(min_last, keys.last);
    max_last = std::max(max_last, keys.last);
  }
  const bool seen = max_last >= 0;
  first_tile = seen ? min_first / kTile : 0;
  end_tile = seen ? max_last / kTile + 1 : 0;
}

ScoreTile make_score_tile(const Head& head, const float* products, const float* bias) {
  const AttentionProblem& problem = head.problem();
  ScoreTile tile;
  tile.products = products;
  tile.scale = problem.scale * kLog2E;
  tile.bias = bias;
  if (problem.soft_cap != 0) tile.inverse_cap = problem.scale / problem.soft_cap;
  if (problem.dropout) {
    const uint64_t sample = static_cast<uint64_t>(problem.sample_numbers[head.row]);
    tile.dropout = true;
    tile.site = problem.key_of_site;
    tile.head_word =
        static_cast<uint32_t>(problem.first_head + head.number()) + (static_cast<uint32_t>(sample >> 32) << 16);
    tile.sample_word = static_cast<uint32_t>(sample);
    tile.drop_below = problem.drop_below;
    tile.keep_scale = problem.keep_scale;
  }
  return tile;
}

void place(ScoreTile& tile, const Head& head, const QueryTile& queries, int64_t key_tile, int64_t query_tile,
           float* bias) {
  const AttentionProblem& problem = head.problem();
  const int64_t key0 = key_tile * kTile, query0 = first_query(problem, head.row) + query_tile * kTile;
  tile.key0 = static_cast<int32_t>(key0);
  tile.query0 = static_cast<uint32_t>(query0);
  tile.first = queries.first;
  tile.last = queries.last;
  tile.masked = queries.cuts(key_tile);
  tile.relative = head.geometry.relative(head.number(), key0, query0);
  if (problem.slopes == nullptr || tile.relative != nullptr) return;
  const float slope = problem.slopes[head.number()] * kLog2E;
  for (int64_t key = 0; key < kTile; ++key) bias[key] = slope * static_cast<float>(key0 + key - query0);
}

void cap_products(const AttentionProblem& problem, float* products) {
  if (problem.soft_cap != 0) row_kernels().soft_cap(products, kScores, problem.soft_cap / problem.scale);
}

Workspace& own_workspace() {
  thread_local Workspace workspace;
  return workspace;
}

Workspace& shared_workspace() {
  thread_local Workspace workspace;
  return workspace;
}

int64_t num_whole_groups(const Geometry& geometry, int64_t tiles) {
  const int64_t threads = at::in_parallel_region() ? 1 : at::get_num_threads();
  if (tiles < kSharedTiles) return geometry.num_groups;
  return geometry.num_groups / threads * threads;
}

const TileOps& tile_ops(AttentionType type) {
#ifdef __aarch64__
  return cpu_isa() >= CpuIsa::kNeon ? kNeonTileOps : kGenericTileOps;
#else
  switch (cpu_isa()) {
    case CpuIsa::kAmx:
      if (type == AttentionType::kBFloat16) return kAmxTileOps;
      return kAvx512TileOps;
    case CpuIsa::kAvx512Bf16:
      if (type == AttentionType::kBFloat16) return kAvx512Bf16TileOps;
      return kAvx512TileOps;
    case CpuIsa::kAvx512: return kAvx512TileOps;
    case CpuIsa::kAvx2: return kAvx2TileOps;
    default: return kGenericTileOps;
  }
#endif
}

}  // namespace espalier::kernels
