// The GPU's kernels as functions on raw pointers of the device: what the .cu files define and ops.cpp calls. Each puts
// its work on `stream` and returns; a launch that the driver refuses is an InternalError.
//
// Plain header. Matrices are row-major, [rows, columns]; sums run in fp32, in an order that depends on sizes alone.
#pragma once

#include <cstdint>

#include "kernels/internal/attention_problem.h"
#include "kernels/internal/row_kernels.h"
#include "spec/fp8.h"

struct CUstream_st;

namespace espalier::cuda {

using Stream = CUstream_st*;
using kernels::AttentionGradients;
using kernels::AttentionProblem;
using kernels::OptimizerElements;
using kernels::StoredElements;

enum class Element { kFloat, kBFloat16, kHalf };

inline bool is_aligned(const void* pointer, uintptr_t bytes = 16) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;  // nullptr: yes
}

// ---- sums over rows

// Rows are divided into parts by their number alone, at most kMostParts; partial sums are [parts, sums, columns] fp32.
inline constexpr int64_t kMostParts = 256, kLeastRowsOfPart = 8;
inline int64_t rows_of_part(int64_t rows) {
  const int64_t least = (rows + kMostParts - 1) / kMostParts;
  return least <= kLeastRowsOfPart ? kLeastRowsOfPart
                                   : (least + kLeastRowsOfPart - 1) / kLeastRowsOfPart * kLeastRowsOfPart;
}
inline int64_t num_parts(int64_t rows) { return (rows + rows_of_part(rows) - 1) / rows_of_part(rows); }
// Where column sums go: `sums` [count, columns], by way of `partials`.
struct ColumnSums {
  float* partials;
  float* sums;
};
void column_sums(Element type, const void* x, int64_t rows, int64_t columns, const ColumnSums& to, Stream stream);

// ---- rows; column sums of backward passes: weight, then bias

void layer_norm_forward(Element type, const kernels::LayerNormForward& args, int64_t rows, Stream stream);
void layer_norm_backward(Element type, const kernels::LayerNormBackward& args, int64_t rows, const ColumnSums& to,
                         Stream stream);

void rms_norm_forward(Element type, const kernels::RmsNormForward& args, int64_t rows, Stream stream);
void rms_norm_backward(Element type, const kernels::RmsNormBackward& args, int64_t rows, const ColumnSums& to,
                       Stream stream);

// Sums over the query heads of all rows, then over the key heads: [2, head_size].
void qk_norm_forward(Element type, const kernels::QkNormForward& args, int64_t rows, Stream stream);
void qk_norm_backward(Element type, const kernels::QkNormBackward& args, int64_t rows, const ColumnSums& to,
                      Stream stream);

void rotate(Element type, const kernels::RotaryRows& args, bool interleaved, Stream stream);

struct Activation {
  kernels::ActivationFunction function;
  bool gated;
};
void activation_forward(Element type, const Activation& kind, const kernels::ActivationForward& args, int64_t rows,
                        Stream stream);
// sums: of dx, or nullptr.
void activation_backward(Element type, const Activation& kind, const kernels::ActivationBackward& args, int64_t rows,
                         const ColumnSums* sums, Stream stream);

// kernels/dropout.h. `sample_numbers`: on the device.
struct Dropout {
  const void* x;
  const void* bias;      // nullptr: none
  const void* residual;  // nullptr: none
  void* y;
  int64_t columns;
  bool masked;  // false: nothing is dropped, scale is not used
  uint32_t key[2];
  const int64_t* sample_numbers;
  int64_t num_samples;     // rows of one position
  int64_t first_position;  // of row 0 in its sample
  uint32_t threshold;      // dropped when word < threshold
  float scale;
};
// sums: of masked and scaled x, or nullptr.
void dropout(Element type, const Dropout& args, int64_t rows, const ColumnSums* sums, Stream stream);

// ---- embedding

// Rows of ids [b, s] in the order of the result, [s, b, columns].
struct EmbeddingForward {
  const int64_t* ids;
  const void* weight;
  void* y;
  int64_t num_samples, length, columns, first_row, num_rows;
};
void embedding_forward(Element type, const EmbeddingForward& args, Stream stream);

// grad rows += dy rows. `sorted_ids`: of all rows of dy, ascending; `order`: the row of dy of each, ascending within an
// id. `partials`: scratch, [embedding_partials(num_tokens), columns].
inline constexpr int64_t kTokensOfRun = 32;  // that are summed one after the other
inline int64_t embedding_partials(int64_t num_tokens) { return (num_tokens + kTokensOfRun - 1) / kTokensOfRun; }
struct EmbeddingBackward {
  const int64_t* sorted_ids;
  const int64_t* order;
  const void* dy;
  float* grad;
  float* partials;
  int64_t num_tokens, columns, first_row, num_rows;
};
void embedding_backward(Element type, const EmbeddingBackward& args, Stream stream);

// ---- softmax over blocks of the vocabulary

// One block of logits in the compute type, [tokens, count].
struct LogitBlock {
  void* logits;
  const int64_t* labels;  // [tokens], rows of the weight
  int64_t tokens, count;
  int64_t first;  // row of the weight of column 0
};
struct SoftmaxState {  // [tokens] each
  float* largest;
  double* sum;
  float* label_logit;
};
void softmax_begin(const SoftmaxState& state, int64_t tokens, Stream stream);
void softmax_accumulate(Element type, const LogitBlock& block, const SoftmaxState& state, Stream stream);
struct LogitGradients {  // [tokens] each; LogitGradient of kernels/internal/row_kernels.h
  const float *log_sum_exp, *losses;
  const float* log_sums;  // nullptr: zeros
};
// logits = exp(logit - log_sum_exp) * (loss + log_sum) - [label] * loss; zeros where `loss` is zero.
void softmax_gradient(Element type, const LogitBlock& block, const LogitGradients& from, Stream stream);

// kernels/draw_labels.h; [positions, samples, rows] in order. `sample_numbers`: on the device.
struct LabelDraws {
  const float* logits;
  int64_t num_rows, first_row;
  uint32_t key[2];
  const int64_t* sample_numbers;
  int64_t num_samples;
  int64_t first_position;
  int64_t* rows;   // [tokens]
  double* scores;  // [tokens]
};
void draw_labels(const LabelDraws& args, int64_t tokens, Stream stream);

// ---- attention; sample_numbers and cache_lengths of the problem: on the device

inline constexpr int64_t kMaxHeadSize = kernels::kMaxDeviceHeadSize;
void attention_forward(const AttentionProblem& problem, Stream stream);
// Scratch, fp32. Tiles of queries and of keys whose numbers differ by the same make a diagonal.
struct AttentionScratch {
  float* row_dots;   // [b, query heads, num_queries]
  float* diagonals;  // [b, query heads, attention_diagonals(problem)], where the relative bias has a gradient
};
int64_t attention_diagonals(const AttentionProblem& problem);  // sums of all diagonals
void attention_backward(const AttentionProblem& problem, const AttentionGradients& gradients,
                        const AttentionScratch& scratch, Stream stream);

// ---- attention to pages, which hold rows of keys and of values: [page][group][page_tokens][head_size]

// Puts the keys and values of the tokens into their pages.
void append_to_pages(Element type, const kernels::PagedAttention& args, const kernels::DeviceTokens& tokens,
                     Stream stream);
// `partials`: scratch, paged_partials(args, tokens), which may be none.
int64_t paged_partials(const kernels::PagedAttention& args, const kernels::DeviceTokens& tokens);
void paged_attention(Element type, const kernels::PagedAttention& args, const kernels::DeviceTokens& tokens,
                     float* partials, Stream stream);

// ---- fp8 (spec/fp8.h)

// Of a bf16 matrix [rows, columns] with elements: codes of one scale. `parts`: scratch, fp8_parts(rows * columns).
struct Fp8Codes {
  const void* x;
  spec::Fp8Format format;
  uint8_t* codes;       // [rows, columns]; nullptr: not wanted
  uint8_t* transposed;  // [columns, rows]; nullptr: not wanted
  float* scale;         // that codes are multiplied by: 2^-k
  float* parts;
};
int64_t fp8_parts(int64_t count);
void fp8_codes(const Fp8Codes& args, int64_t rows, int64_t columns, Stream stream);

// ---- optimizer

// A list of tensors on the device; kListed elements of one of them are a block's.
inline constexpr int64_t kListed = 8192;
template <class Item>
struct List {
  const Item* items;
  const int64_t* first_blocks;  // of each, and how many there are in all
  int64_t count, blocks;
};

// is_aligned: every pointer is at a multiple of the bytes that four elements take there, and accesses are of so many.
struct ListedUpdate {
  OptimizerElements elements;
  int64_t count;
  bool is_aligned;
};
void optimizer_update(spec::OptimizerType optimizer, Element type, const List<ListedUpdate>& list, Stream stream);

struct ListedStored {
  StoredElements stored;
  const int64_t* runs;  // StateRounding's
  int64_t num_runs, count;
};
void optimizer_update_stored(spec::OptimizerType optimizer, Element type, const List<ListedStored>& list,
                             Stream stream);

struct ListedMeasure {
  const float* values;
  int64_t count;
  bool is_aligned;
};
struct MeasuredParts {
  double squares, zeros, not_finite;
};
// Of each tensor of the list, in double, by way of parts [list.blocks].
void measure(const List<ListedMeasure>& list, MeasuredParts* parts, MeasuredParts* sums, Stream stream);

}  // namespace espalier::cuda
