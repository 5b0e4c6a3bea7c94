// The tile operations from which attention is made, as one table of functions per instruction set. Plain header.
//
// A tile is kTile keys by kTile queries. Scores are held transposed, keys as rows and queries as columns: vector lanes
// are then queries, the softmax needs no sum across lanes, and one Philox block per lane serves four rows of keys.
//
// A panel is a tile of kTile positions of one matrix of one head (query, key, value, ...), zero beyond its positions
// and features, in one of four layouts. F is the head size rounded up to kFeatureStep; g elements make 32 bits (1 fp32,
// 2 bf16).
//   rows         [kTile][F]
//   columns      [F/g][kTile][g]
//   interleaved  [kTile/g][F][g]
//   transposed   [F][kTile]
// Left operands of a product are rows or transposed, right operands columns or interleaved.
#pragma once

#include <cstdint>

#include "kernels/internal/attention_problem.h"

namespace espalier::kernels {

inline constexpr int64_t kTile = 64;
inline constexpr int64_t kFeatureStep = 32;

// One tile of scores and all that turns them into probabilities.
struct ScoreTile {
  const float* products = nullptr;  // [kTile keys][kTile queries] q k, unscaled
  float scale = 0;                  // of the products, times log2(e): exponents are to base 2
  const float* bias = nullptr;      // [kTile keys], times log2(e)
  // Where the products are what a soft cap has made of them: 1 / the cap of products; dS is of what they were before,
  // the sums by distance are not. 0: none.
  float inverse_cap = 0;
  // Instead of that, by distance, times log2(e): of a query and a key in relative[query lane - key]; null: none.
  const float* relative = nullptr;
  // [2 * kTile]: softmax_backward writes the sum of dS over all pairs of a distance to [kTile - 1 + query lane - key].
  float* relative_sums = nullptr;

  // Query lane sees the keys first .. last (positions); looked at only if masked.
  bool masked = false;
  int32_t key0 = 0;                // position of the first key, a multiple of kTile
  const int32_t* first = nullptr;  // [kTile queries]
  const int32_t* last = nullptr;

  bool dropout = false;
  tensor::PhiloxKey site{};
  uint32_t query0 = 0, head_word = 0, sample_word = 0;  // of the counter
  uint32_t drop_below = 0;
  float keep_scale = 1;
};

struct TileOps {
  int64_t element_bytes;  // 4: elements are fp32, 2: bf16

  // Before and after a thread's use of the others.
  void (*begin)();
  void (*end)();

  // `positions` rows of `features` values, `stride` values apart -> panel in rows, [kTile][padded].
  void (*load_rows)(AttentionType type, const void* source, int64_t stride, int64_t positions, int64_t features,
                    int64_t padded, void* rows);
  void (*columns)(const void* rows, int64_t padded, void* columns);
  void (*interleave)(const void* rows, int64_t padded, void* interleaved);
  // From the interleaved layout.
  void (*transpose)(const void* interleaved, int64_t padded, void* transposed);
  // The inverse of load_rows, from fp32: source [positions][padded] times `factor`.
  void (*store_rows)(AttentionType type, const float* source, int64_t padded, float factor, int64_t positions,
                     int64_t features, void* target, int64_t stride);
  // fp32 [F][kTile] -> [kTile][F].
  void (*untranspose)(const float* source, int64_t padded, float* rows);
  // Sum over features of a b for each of kTile rows.
  void (*row_dots)(const void* a_rows, const void* b_rows, int64_t padded, float* dots);

  // c [m][n] = or += a [m][k] b [k][n], c fp32; m, n, k multiples of 32; b is [k/g][n][g]. All contiguous.
  void (*multiply)(float* c, const void* a, const void* b, int64_t m, int64_t n, int64_t k, bool accumulate);

  // One step of the online softmax: raises max[query] over the tile, writes 2^(x - max) times the dropout factor as
  // right operand [kTile keys/g][kTile queries][g], rescales sum and adds the tile's (before dropout). `rescale` is
  // what earlier results have to be multiplied by; returns whether one of them is not 1.
  bool (*softmax)(const ScoreTile& tile, float* max, float* sum, float* rescale, void* probabilities);
  // c [rows][kTile] *= factor[query].
  void (*scale_columns)(float* c, const float* factor, int64_t rows);

  // From the products and dP [kTile keys][kTile queries], per query the base-2 log-sum-exp and D = sum of dO O:
  // the probabilities times dropout factor (rows [key][query]) and dS = P (factor dP - D), both as rows and
  // interleaved over keys (the same memory may serve both where g = 1). Where the tile has a relative bias, its sums of
  // dS by distance, in fp32, of what was not rounded.
  void (*softmax_backward)(const ScoreTile& tile, const float* d_probabilities, const float* log_sum_exp,
                           const float* row_dots, void* probabilities, void* d_scores, void* d_scores_interleaved);

  // For single queries, in the compute type as it is there: dots[row] = q k of `count` rows of keys.
  void (*dot_rows)(AttentionType type, const float* query, const void* keys, int64_t stride, int64_t count,
                   int64_t features, float* dots);
  // result[feature] += sum over `count` rows of weight[row] rows[row][feature].
  void (*add_rows)(AttentionType type, const float* weights, const void* rows, int64_t stride, int64_t count,
                   int64_t features, float* result);
  // x[i] = 2^x[i] for x <= 0, relative error below 2^-22; 0 for x < -100.
  void (*exp2)(float* x, int64_t count);
};

// The operations of the instruction set in force (base/cpu_isa.h) with the fastest elements for this type; with
// kFloat those of fp32 elements, which serve every type.
const TileOps& tile_ops(AttentionType type);

// The tables, one per unit; fp32 elements serve every type, bf16 elements only kBFloat16.
extern const TileOps kGenericTileOps, kNeonTileOps, kAvx2TileOps, kAvx512TileOps, kAvx512Bf16TileOps, kAmxTileOps;

}  // namespace espalier::kernels
