// What the forward and the backward pass of attention share: the geometry of a problem, one head of it, the mask of a
// tile, and how the work is divided among threads.
//
// As many groups of heads as the threads can share evenly are computed by one thread each. The groups left over (all of
// them, where tensor parallelism leaves a rank fewer groups than threads) are shared tile by tile. Every number is
// computed from the same numbers in the same order either way, so that the division changes no bit.
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "kernels/internal/attention_tiles.h"

namespace espalier::kernels {

inline constexpr int64_t kScores = kTile * kTile;

inline int64_t num_tiles(int64_t positions) { return (positions + kTile - 1) / kTile; }

// ---- a problem and its parts

// What the queries of a tile see.
struct QueryTile {
  alignas(64) int32_t first[kTile], last[kTile];  // keys; 0 and -1 for queries that see none or are beyond the end
  int64_t max_first, min_last;                    // over those that exist
  int64_t first_tile, end_tile;                   // of the tiles of keys that some query sees; equal if there is none

  QueryTile(const AttentionProblem& problem, int64_t row, int64_t tile);
  bool sees(int64_t key_tile) const { return first_tile <= key_tile && key_tile < end_tile; }
  bool lane_sees(int64_t lane) const { return first[lane] <= last[lane]; }
  // Whether some query does not see some key of the tile.
  bool cuts(int64_t key_tile) const { return key_tile * kTile < max_first || key_tile * kTile + kTile - 1 > min_last; }
};

// What all heads of a problem share. Groups are counted over all rows, row by row.
struct Geometry {
  const AttentionProblem& problem;
  const TileOps& ops;
  int64_t padded;       // head size, rounded up
  int64_t panel_bytes;  // of elements
  int64_t sums_bytes;   // of a panel of fp32 sums
  int64_t score_bytes;  // of a tile of elements
  int64_t query_tiles, key_tiles, num_groups;

  explicit Geometry(const AttentionProblem& problem);

  const QueryTile& queries_of(int64_t row, int64_t tile) const { return queries_[row * query_tiles + tile]; }
  // The tiles of keys from the first to the last that some query of the row sees: [first, end).
  struct TileRange {
    int64_t first, end;
  };
  TileRange key_tiles_of(int64_t row) const { return seen_[row]; }
  // The bias by distance of a query head as ScoreTile::relative has it, ALiBi's included, for keys from position `key0`
  // and queries from position `query0` on; zeros beyond what there is. Null: none.
  const float* relative(int64_t head, int64_t key0, int64_t query0) const {
    if (relative_.empty()) return nullptr;
    return relative_.data() + head * relative_count_ + farthest_ - (key0 - query0);
  }

 private:
  void reverse_relative_bias();

  std::vector<QueryTile> queries_;  // [row][query tile]
  std::vector<TileRange> seen_;     // [row]
  // [query head][farthest_ - distance], times log2(e); farthest_: the largest distance in any tile.
  std::vector<float> relative_;
  int64_t farthest_ = 0, relative_count_ = 0;
};

// One query head of one row of the batch, with the keys and values of its group.
struct Head {
  const Geometry& geometry;
  int64_t row, group, member;

  // `group` counts over all rows.
  Head(const Geometry& g, int64_t group, int64_t member)
      : geometry(g), row(group / g.problem.groups), group(group % g.problem.groups), member(member) {}

  const AttentionProblem& problem() const { return geometry.problem; }
  int64_t num_keys() const { return num_keys_of_row(problem(), row); }
  const QueryTile& queries(int64_t tile) const { return geometry.queries_of(row, tile); }
  int64_t number() const { return group * problem().members + member; }  // in its row
  char* at(const AttentionOperand& operand, int64_t position) const {
    const int64_t value_bytes = problem().type == AttentionType::kFloat ? 4 : 2;
    return static_cast<char*>(operand.data) +
           value_bytes * (row * operand.row_stride + group * operand.group_stride + member * operand.member_stride +
                          position * operand.position_stride);
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
    return problem().log_sum_exp + (row * problem().heads() + number()) * problem().num_queries + query;
  }
};

// The tile of scores of a head, but for its place. `bias`: [kTile], zeros unless place() writes it.
ScoreTile make_score_tile(const Head& head, const float* products, const float* bias);

// Puts the tile at (key tile, query tile) and writes its bias, or says where its relative bias is.
void place(ScoreTile& tile, const Head& head, const QueryTile& queries, int64_t key_tile, int64_t query_tile,
           float* bias);

// The products of a tile, [kTile][kTile], as the scores' soft cap makes them; nothing happens without one.
void cap_products(const AttentionProblem& problem, float* products);

// ---- memory

// Aligned to 64 bytes, kept from call to call: fresh memory would cost a page fault for every 4 KiB, as much as the
// computation at short lengths.
class Workspace {
 public:
  // Pointers from before are invalid if it grows.
  char* reserve(int64_t bytes) {
    if (bytes > capacity_) {
      memory_.reset(static_cast<char*>(::operator new(bytes, kAlignment)));
      capacity_ = bytes;
    }
    return memory_.get();
  }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(char* p) const { ::operator delete(p, kAlignment); }
  };
  std::unique_ptr<char, Free> memory_;
  int64_t capacity_ = 0;
};

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

// The calling thread's, for what it needs alone, and for what it lets all threads see.
Workspace& own_workspace();
Workspace& shared_workspace();

// Bytes of a struct of buffers made from (geometry, carver).
template <class Buffers>
int64_t bytes_of(const Geometry& geometry) {
  Carver measure(nullptr);
  Buffers{geometry, measure};
  return measure.used();
}

// ---- threads

// Groups that are computed by one thread each; those from this number on are shared, by `tiles` tiles of a group.
int64_t num_whole_groups(const Geometry& geometry, int64_t tiles);

// Calls body(i, buffers) for i = 0 .. count - 1, in parallel, each thread with buffers of its own.
template <class Buffers, class Body>
void for_each(const Geometry& geometry, int64_t count, const Body& body) {
  at::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
    Carver carver(own_workspace().reserve(bytes_of<Buffers>(geometry)));
    const Buffers buffers(geometry, carver);
    geometry.ops.begin();
    for (int64_t i = begin; i < end; ++i) body(i, buffers);
    geometry.ops.end();
  });
}

// The same, where one call takes longer than another: a thread takes the next i when it is done with its last. Whoever
// computes i may wait for the calls below i, which have all begun.
template <class Buffers, class Body>
void for_each_in_order(const Geometry& geometry, int64_t count, const Body& body) {
  std::atomic<int64_t> next{0};
  for_each<Buffers>(geometry, at::get_num_threads(), [&](int64_t, const Buffers& buffers) {
    for (int64_t i = next++; i < count; i = next++) body(i, buffers);
  });
}

}  // namespace espalier::kernels
