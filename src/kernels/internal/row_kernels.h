// The element-wise and row-wise CPU kernels as a table of functions on raw pointers: one table per instruction set,
// all made from the same templates (*_rows.h) over a vector of 16 floats, so that they give the same bits.
//
// Plain header: the units compiled for one instruction set include it.
#pragma once

#include <cstdint>

#include "spec/fp8.h"
#include "spec/optimizer_element.h"

namespace espalier::kernels {

// Storage of the two short types. Bits only: conversions belong to the vectors.
struct Bf16 {
  uint16_t bits;
};
struct Fp16 {
  uint16_t bits;
};

// Tensors are row-major [rows, columns]. `void` is the compute type of the table that the function is in.
struct LayerNormForward {
  const void* x;
  const void* weight;
  const void* bias;
  void* y;
  float* mean;  // [rows]
  float* rstd;  // [rows], 1 / sqrt(variance + epsilon)
  int64_t columns;
  float epsilon;
};
struct LayerNormBackward {
  const void* x;
  const void* weight;
  const void* dy;
  void* dx;
  const float* mean;
  const float* rstd;
  int64_t columns;
};

struct RmsNormForward {
  const void* x;
  const void* weight;
  void* y;
  float* rstd;  // [rows], 1 / sqrt(mean square + epsilon)
  int64_t columns;
  float epsilon;
};
struct RmsNormBackward {
  const void* x;
  const void* weight;
  const void* dy;
  void* dx;
  const float* rstd;
  int64_t columns;
};

// A row is a group of heads: `queries` heads of queries, one of keys, one of values (kernels/heads.h).
struct QkNormForward {
  const void* x;
  const void* query_weight;  // [head_size], as that of the keys
  const void* key_weight;
  void* y;
  float* rstd;  // [rows][queries + 1]
  int64_t queries;
  int64_t head_size;
  float epsilon;
};
struct QkNormBackward {
  const void* x;
  const void* query_weight;
  const void* key_weight;
  const void* dy;
  void* dx;
  const float* rstd;
  int64_t queries;
  int64_t head_size;
};

inline constexpr int64_t kMaxRotarySize = 1024;
// Rows are [position][sample], each `groups` groups of heads as above.
struct RotaryRows {
  const void* x;
  void* y;
  const float* cosine;  // [table positions][rotary_size / 2], as the sines
  const float* sine;
  float sine_sign;           // -1 turns back
  const int64_t* positions;  // [sample][position]: row of the table
  int64_t num_samples, length;
  int64_t groups, queries;  // of a group
  int64_t head_size, rotary_size;
};

// `columns` of the result; a gated activation has twice as many in x, bias and dx.
struct ActivationForward {
  const void* x;
  const void* bias;  // nullptr: none
  void* y;
  int64_t columns;
};
struct ActivationBackward {
  const void* x;
  const void* bias;  // nullptr: none
  const void* dy;
  void* dx;
  int64_t columns;
};
enum class ActivationFunction { kGeluTanh, kGeluErf, kRelu, kSquaredRelu, kSilu, kIdentity };
inline constexpr int kActivationFunctions = 6;
struct ActivationKernels {
  void (*forward)(const ActivationForward&, int64_t first, int64_t last);
  void (*backward)(const ActivationBackward&, int64_t first, int64_t last, float* bias_sums_or_null);
  void (*gated_forward)(const ActivationForward&, int64_t first, int64_t last);
  void (*gated_backward)(const ActivationBackward&, int64_t first, int64_t last, float* bias_sums_or_null);
};

inline constexpr int kPhiloxWords = 64;  // words of one call: 16 counters
// The key of every round: word i of the key plus round times Weyl constant i.
struct PhiloxRoundKeys {
  uint32_t first[10];
  uint32_t second[10];
};

// y = residual + mask(x + bias) * scale; rows are [position][sample].
struct DropoutRows {
  const void* x;
  const void* bias;      // [columns] or nullptr
  const void* residual;  // nullptr: none
  void* y;
  int64_t columns;
  bool masked;  // false: nothing is dropped, scale is not used
  PhiloxRoundKeys keys;
  const int64_t* sample_numbers;
  int64_t num_samples;     // rows of one position
  int64_t first_position;  // of row 0 in its sample
  uint32_t threshold;      // dropped when word < threshold
  float scale;
};

struct OptimizerElements {
  float* master;
  float* states[spec::kMaxOptimizerStates];  // as many as the optimizer has
  float* grad;  // written by those that scale by norms, which write nothing else but states
  void* value;  // nullptr: the master is the value
  spec::OptimizerConstants constants;
};
// The same, of which some states are stored in fewer bits (spec/stored_state.h); those in fp32 are in elements.states.
struct StoredElements {
  struct State {
    void* data = nullptr;  // of the first element
    spec::StateType type = spec::StateType::kFp32;
    bool has_sign = false;
  };
  OptimizerElements elements;
  State states[spec::kMaxOptimizerStates];
  // The random word of an element is that of the counter (its number / 4, that upper half, step, that upper half); the
  // first state takes the lower half of the word, the second the upper.
  PhiloxRoundKeys keys;
  uint64_t step;
};
struct OptimizerKernels {
  void (*of[spec::kNumOptimizers])(const OptimizerElements&, int64_t first, int64_t last);  // by OptimizerType
  // `number`: of the first element in its whole parameter. 8-bit blocks begin and end with the range.
  void (*of_stored[spec::kNumOptimizers])(const StoredElements&, int64_t first, int64_t last, int64_t number);
};

// One row of a block of fp32 logits, as a product left them: they are first rounded to the compute type.
struct LogitRow {
  float* logits;
  int64_t count;
  int64_t label;  // its index in the block; outside 0 .. count - 1 when the row's label is in another block
};
// The same, rounded to the compute type.
struct RoundedLogitRow {
  const void* logits;
  int64_t count, label;
};
// The softmax of one row, block after block; sums between blocks in double.
struct SoftmaxSums {
  float largest = -__builtin_inff();
  double sum = 0;  // of exp(logit - largest)
  float label_logit = 0;
};

// What the gradient of a row's logits is made of.
struct LogitGradient {
  float log_sum_exp;  // of the whole row
  float loss;         // upstream gradient of log_sum_exp - logit[label]
  // Upstream gradient of log_sum_exp by itself (z-loss), 0 where `loss` is.
  float log_sum = 0;
  // Where the row holds what soft_cap has made of the logits: 1 / cap; the gradient is of what they were before. Else
  // 0.
  float inverse_cap = 0;
};

// y = x weight^T + bias; each element is summed in an order that depends on `inputs` alone.
struct RowProduct {
  const void* x;       // [tokens, inputs]
  const void* weight;  // [outputs, inputs]
  const void* bias;    // [outputs] or nullptr
  void* y;             // [tokens, outputs]
  int64_t tokens, outputs, inputs;
  bool fp32_result;  // else of the compute type
};
inline constexpr int64_t kProductBlock = 16;  // outputs of one call, but for the last

// The part of a product between two inputs. Its running sums begin with zero, or with those of the part before; the
// last part leaves the products in `sums` instead.
struct ProductPart {
  int64_t begin, end, inputs;
  bool first() const { return begin == 0; }
  bool last() const { return end == inputs; }
};

// Products in fp32 (kernels/wide_product.h) by panels: as many rows of A, or columns of B, as a tile of C in registers
// has, as fp32 [depth][width]; so a tile fetches nothing that it does not use.
//
// What panels are made of: rows of A, or columns of B. The last panel is filled up with zeros.
struct PanelSource {
  const void* values;
  int64_t stride;  // elements between rows of the source
  int64_t count, depth;
};
struct PackPanels {
  // Writes panels panel_stride elements apart.
  using Pack = void (*)(const PanelSource&, int64_t panel_stride, float* panels);
  Pack along;  // rows of the source run along the panels: [depth, count]
  // They run along the depth: [count, depth], all of it at once. Panels of A are written in order, each perhaps up to
  // kPackSlack elements beyond its end.
  Pack across;
};
inline constexpr int64_t kPackSlack = 16;  // of a vector, stored for a panel that is narrower
// c [rows, columns] = a b + addend of panels of A and one of B; each element the sum over the depth in order, then the
// addend, which may be c.
struct PanelProduct32 {
  const float* a;  // panels one after another
  const float* b;
  const float* next_b;  // the panel of the next product, fetched meanwhile; nullptr: none
  int64_t depth, rows, columns;
  const float* addend;  // nullptr: none
  int64_t addend_stride;
  float* c;
  int64_t c_stride;
};

// RowProduct of many tokens in fp32, kOutputs outputs of one call, with the same bits. The inputs are divided into
// kLanes parts, where lane l has the inputs l, l + kLanes, ...; each lane has the panels of kTokens tokens, or of
// kOutputs outputs, one after another.
struct PanelRowProduct {
  static constexpr int64_t kLanes = 16;                  // of a vector, which has as many running sums of an output
  static constexpr int64_t kTokens = 36, kOutputs = 32;  // multiples of the widths of all instruction sets
  static constexpr int64_t kTile = kTokens * kOutputs;   // sums
  static constexpr int64_t kTiles = 4;                   // one for each time that the lanes are halved
  static_assert(1 << kTiles == kLanes);
  // Turning the weights costs a product of 16 tokens half of its rate, and pays from about this many on.
  static constexpr int64_t kLeastTokens = 32;
  static int64_t lane_inputs(int64_t inputs) { return (inputs + kLanes - 1) / kLanes; }
  static int64_t token_lane_size(int64_t inputs) { return kTokens * lane_inputs(inputs) + kPackSlack; }
  static int64_t tokens_size(int64_t inputs) { return kLanes * token_lane_size(inputs); }  // packed
  static int64_t scratch_size(int64_t inputs) { return kLanes * kOutputs * lane_inputs(inputs) + kTiles * kTile; }

  RowProduct product;  // its x is not read
  const float* x;      // packed: tokens_size elements for each kTokens
  float* scratch;      // of the calling thread
};

inline constexpr int64_t kMaxPagedHeadSize = 512, kMaxPageTokens = 64, kPagedTile = 16;
inline constexpr int64_t kMaxDeviceHeadSize = 256;  // of all attention on a device
struct PagedToken {
  const int32_t* pages;
  int32_t position, first_key, last_key;
};
// The same in the memory of a device. Tokens that have consecutive positions of one sequence are a run. Long ones are
// divided into tiles of at most kTile tokens, those that see the most keys first; the tokens of the others are singles,
// each as often in their list as it has parts of keys.
struct DeviceTokens {
  static constexpr int64_t kTile = 128;
  // Tokens of a long run. A tile takes as long for a few rows as for all of a warp's, which are 16 or more; a few
  // single tokens are faster, as their blocks run beside one another. An estimate: it has not been timed.
  static constexpr int64_t kLeastRun = 16;
  // Of a part, which one block has of one head. Keys are divided by their positions, so that what is computed of a
  // token depends on its own alone; a few thousand of them, times the heads, are then blocks for a whole GPU.
  static constexpr int kKeysOfPart = 512;
  struct Tile {
    int32_t first, count;  // its tokens
    int32_t num_keys;      // up to the last that one of them sees
  };
  struct Single {
    int32_t token, part;  // of the keys up to its last, from 0 on, in order
  };
  const int32_t *sequences, *positions, *last_keys;  // [count]
  const Tile* tiles;
  const Single* singles;
  const int32_t* pages;  // [sequences][pages_of_sequence]
  int64_t count, num_tiles, num_singles, pages_of_sequence;
  int64_t window;  // as AttentionContext has it
};
// A page has keys of a head as [head_size][page_lanes], a position in each lane, and values as
// [page_tokens][head_size], which take no more than page_elements_of_head.
inline int64_t page_lanes(int64_t page_tokens) { return (page_tokens + 15) / 16 * 16; }
inline int64_t page_elements_of_head(int64_t page_tokens, int64_t head_size) {
  return page_lanes(page_tokens) * head_size;
}
// Attention of tokens to the pages of their sequences (kernels/paged_attention.h).
struct PagedAttention {
  const void* qkv;  // [tokens][group][its query heads, then `parts` - queries others: key, value][head_size]
  void* result;     // [tokens][query head][head_size]
  // [page][group], of each what is said above, or pairs of bf16 (avx512bf16::append_pairs); on a device
  // [page_tokens][head_size].
  void* keys;
  void* values;
  const PagedToken* tokens;  // not of a device's
  int64_t groups, queries;   // of a group
  int64_t parts;             // rows of a group in `qkv`: queries + 2, or only the queries
  int64_t head_size, page_tokens;
  float scale;
  const float* slopes;  // of each query head; nullptr: none
  // Of each query head 2 n - 1 numbers, of which number n - 1 + (key - query) is added to a score; nullptr: none.
  const float* relative_bias = nullptr;
  int64_t relative_keys = 0;  // n
  float soft_cap = 0;         // of scaled scores; 0: none
};

// Functions over rows first .. last - 1. `sums`: fp32 column sums over those rows, written (not added to).
struct TypedRowKernels {
  void (*layer_norm_forward)(const LayerNormForward&, int64_t first, int64_t last);
  void (*layer_norm_backward)(const LayerNormBackward&, int64_t first, int64_t last, float* weight_sums,
                              float* bias_sums);
  void (*rms_norm_forward)(const RmsNormForward&, int64_t first, int64_t last);
  void (*rms_norm_backward)(const RmsNormBackward&, int64_t first, int64_t last, float* weight_sums);
  void (*qk_norm_forward)(const QkNormForward&, int64_t first, int64_t last);
  void (*qk_norm_backward)(const QkNormBackward&, int64_t first, int64_t last, float* query_sums, float* key_sums);
  void (*rotate_halves)(const RotaryRows&, int64_t first, int64_t last);
  void (*rotate_pairs)(const RotaryRows&, int64_t first, int64_t last);
  ActivationKernels activations[kActivationFunctions];  // in the order of ActivationFunction
  void (*dropout)(const DropoutRows&, int64_t first, int64_t last, float* sums_or_null);
  OptimizerKernels update;
  void (*row_product)(const RowProduct&, int64_t block);
  void (*panel_row_product)(const PanelRowProduct&, int64_t block);
  void (*pack_tokens)(const PanelSource&, float* packed);                        // at most PanelRowProduct::kTokens
  void (*append_to_pages)(const PagedAttention&, int64_t count, int64_t group);  // the first `count` tokens
  // Of `count` tokens (at most kPagedTile) of one sequence from `first` on, and one query head.
  void (*paged_attention)(const PagedAttention&, int64_t first, int64_t count, int64_t head);
  PackPanels pack_rows, pack_columns;  // of A, of B
  void (*column_sums)(const void* x, int64_t columns, int64_t first, int64_t last, float* sums);
  void (*round_row)(const float* values, int64_t count, void* rounded);  // to the compute type
  void (*add_to_row)(float* sum, const void* row, int64_t count);        // sum[i] += row[i]
  void (*softmax_accumulate)(const LogitRow&, SoftmaxSums* sums);
  // exp(logit - log_sum_exp) * (loss + log_sum) - [label] * loss, in the compute type; zeros when `loss` is zero
  void (*softmax_gradient)(const LogitRow&, const LogitGradient& from, void* gradient);
  // the same from rounded logits that no soft cap has changed
  void (*softmax_gradient_rounded)(const RoundedLogitRow&, const LogitGradient& from, void* gradient);
  // the same in fp32, over the logits
  void (*softmax_gradient_fp32)(const LogitRow&, const LogitGradient& from, void* gradient);
};

struct RowKernels {
  TypedRowKernels fp32, bf16, fp16;
  int64_t panel_rows, panel_columns;  // widths of a panel of A and of B
  void (*multiply_panels)(const PanelProduct32&);
  // sums[c] = partials[0][c] + partials[1][c] + ..., in that order, for c in first .. last - 1
  void (*add_partials)(const float* partials, int64_t num_partials, int64_t columns, int64_t first, int64_t last,
                       float* sums);
  // cap tanh(value / cap), in place
  void (*soft_cap)(float* values, int64_t count, float cap);
  double (*sum_of_squares)(const float* values, int64_t count);
  int64_t (*count_zeros)(const float* values, int64_t count);
  int64_t (*count_not_finite)(const float* values, int64_t count);
  // kernels/fp8.h
  uint32_t (*largest_magnitude)(const Bf16* values, int64_t count);
  void (*round_to_grid)(const spec::Fp8Grid& grid, const Bf16* values, int64_t count, Bf16* rounded);
  // The words of 16 successive counters whose word 0 starts at `first`.
  void (*philox_words)(const PhiloxRoundKeys& keys, uint32_t first, uint32_t word1, uint32_t word2, uint32_t word3,
                       uint32_t* words);
};

namespace generic {
const RowKernels& row_kernels();
}
// Of the processor that this is compiled for.
namespace neon {
const RowKernels& row_kernels();
}
namespace avx2 {
const RowKernels& row_kernels();
}
namespace avx512 {
const RowKernels& row_kernels();
}
namespace avx512bf16 {
void row_product_bf16(const RowProduct& product, int64_t block);
// Pages hold pairs as the instruction takes them, in words of 32 bits. Keys: channels 2 i and 2 i + 1 of each position,
// [i][page_tokens]. Values: positions 2 i and 2 i + 1 of each channel, [i][paged_lanes(head_size)]; a position that
// begins a pair makes the other half zero. Elements that either takes in a page:
inline int64_t paged_lanes(int64_t head_size) { return (head_size + 15) / 16 * 16; }
inline int64_t paged_elements(int64_t page_tokens, int64_t head_size) { return paged_lanes(head_size) * page_tokens; }
void append_pairs(const PagedAttention& args, int64_t count, int64_t group);
// Of `count` tokens of one sequence from `first` on, and the query heads of one group, kPagedRows rows at a time.
inline constexpr int64_t kPagedRows = 64;
void paged_attention_bf16(const PagedAttention& args, int64_t first, int64_t count, int64_t group);
}  // namespace avx512bf16
// Products of bf16 rows on tiles. The inputs lie in panels of 16 tokens: of each 32 inputs [pair][token] in words of
// two, zeros beyond the last.
namespace amx {
inline constexpr int64_t kTokenPanel = 16, kTileInputs = 32, kTileOutputs = 32;
inline int64_t padded_inputs(const RowProduct& product) {
  return (product.inputs + kTileInputs - 1) / kTileInputs * kTileInputs;
}
inline int64_t token_panels(const RowProduct& product) { return (product.tokens + kTokenPanel - 1) / kTokenPanel; }
void pack_tokens(const RowProduct& product, int64_t panel, uint16_t* packed);  // of all panels
// Outputs from begin * kTileOutputs to end * kTileOutputs. `padded`: [kTileOutputs, padded_inputs], scratch.
void row_product_bf16(const RowProduct& product, const uint16_t* packed, int64_t begin, int64_t end, uint16_t* padded);
// As avx512bf16's, from the same pages.
void paged_attention_bf16(const PagedAttention& args, int64_t first, int64_t count, int64_t group);
}  // namespace amx

}  // namespace espalier::kernels
