// Cross entropy by bf16 panels.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <vector>

#include "kernels/cross_entropy_blocks.h"
#include "kernels/internal/row_dispatch.h"
#include "kernels/matmul.h"
#include "kernels/matmul_blocked.h"

namespace espalier::kernels {
namespace {

// Rows of the weight packed at a time: between two of these the threads wait for each other.
constexpr int64_t kForwardBlock = 4096;
// In the backward pass it is also the depth of dx's product: how much is summed between two visits of dx in memory.
constexpr int64_t kBackwardBlock = 1024;

at::Tensor rows_of(const at::Tensor& weight, int64_t first, int64_t block) {
  return weight.narrow(0, first, std::min(block, weight.size(0) - first));
}

// Token panels `begin`..`end` times B: calls visit(token, first column, logits of the token, count) for each row of
// fp32 logits, which visit may overwrite.
template <class Visit>
void for_each_row(const Bf16Kernels& kernels, const at::Tensor& x, const PackedB& b, std::pair<int64_t, int64_t> range,
                  Visit visit) {
  const int64_t block = std::min(cached_columns(b.depth), (b.columns + kPanel - 1) / kPanel * kPanel);
  const RowPanels panels(x, b.depth);
  const at::Tensor storage = at::empty({kPanel * block}, at::TensorOptions().dtype(at::kFloat));
  float* logits = storage.mutable_data_ptr<float>();
  for (int64_t column = 0; column < b.columns; column += block) {
    for (int64_t token = range.first * kPanel; token < range.second * kPanel; token += kPanel) {
      PanelProduct product = panels.product(token);
      product.b = b.panel(column);
      product.columns = std::min(block, b.columns - column);
      kernels.store(product, logits, block);
      for (int64_t row = 0; row < product.rows; ++row)
        visit(token + row, column, logits + row * block, product.columns);
    }
  }
}

// Logits of the first columns of the vocabulary, kept as rows of bf16, to which they are rounded anyway: [tokens,
// columns].
class KeptLogits {
 public:
  explicit KeptLogits(const at::Tensor& kept)
      : columns_(kept.dim() == 2 ? kept.size(1) : 0), values_(columns_ == 0 ? nullptr : mutable_bf16_data(kept)) {}
  // As many columns as fit, whole blocks of the backward pass or all.
  static at::Tensor allocate(int64_t bytes, int64_t tokens, int64_t vocabulary) {
    const int64_t fitting = bytes / 2 / std::max<int64_t>(1, tokens);
    const int64_t columns = fitting >= vocabulary ? vocabulary : fitting / kBackwardBlock * kBackwardBlock;
    return at::empty({tokens, columns}, at::TensorOptions().dtype(at::kBFloat16));
  }

  void keep(int64_t token, int64_t first, const float* logits, int64_t count) const {
    if (first < columns_) kernels_.round_row(logits, std::min(count, columns_ - first), row(token, first));
  }
  bool has(int64_t first, int64_t count) const { return first + count <= columns_; }
  uint16_t* row(int64_t token, int64_t first) const { return values_ + token * columns_ + first; }

 private:
  const TypedRowKernels& kernels_ = row_kernels(at::kBFloat16);
  int64_t columns_;
  uint16_t* values_;
};

// The bias in fp32; no values where there is none.
class LogitBias {
 public:
  explicit LogitBias(const at::Tensor& bias) : values_(bias.defined() ? bias.to(at::kFloat) : at::Tensor()) {}
  void add(int64_t first, int64_t count, float* logits) const {
    if (!values_.defined()) return;
    const float* values = values_.const_data_ptr<float>() + first;
    for (int64_t i = 0; i < count; ++i) logits[i] += values[i];
  }

 private:
  at::Tensor values_;
};

// Gradients of the logits of one block of the vocabulary: rows of `stride` bf16, whole panels of tokens readable.
struct LogitGradients {
  uint16_t* values;
  int64_t tokens, stride;
  uint16_t* row(int64_t token) const { return values + token * stride; }
};

// dx += dlogits W_b for token panels `begin`..`end`.
void add_input_grad(const Bf16Kernels& kernels, const LogitGradients& dlogits, const PackedB& b,
                    std::pair<int64_t, int64_t> range, const at::Tensor& dx) {
  const int64_t block = cached_columns(b.depth);
  float* out = dx.mutable_data_ptr<float>();
  for (int64_t column = 0; column < b.columns; column += block) {
    for (int64_t token = range.first * kPanel; token < range.second * kPanel; token += kPanel) {
      kernels.add({.a = dlogits.row(token),
                   .a_stride = dlogits.stride,
                   .a_step = kDepthUnit,
                   .b = b.panel(column),
                   .depth = b.depth,
                   .rows = std::min(kPanel, dlogits.tokens - token),
                   .columns = std::min(block, b.columns - column)},
                  out + token * b.columns + column, b.columns);
    }
  }
}

// grad [rows of the block, hidden] += dlogits^T x, or = that; packed_x: one entry per kGradTokens.
void write_weight_grad(const Bf16Kernels& kernels, const LogitGradients& dlogits, const std::vector<PackedB>& packed_x,
                       const at::Tensor& grad, tensor::GradWrite write) {
  at::parallel_for(0, num_panels(grad.size(0)), 1, [&](int64_t begin, int64_t end) {
    for (size_t block = 0; block < packed_x.size(); ++block) {
      const int64_t token = static_cast<int64_t>(block) * kGradTokens;
      const TransposedProduct product{.a = dlogits.row(token),
                                      .stride = dlogits.stride,
                                      .depth = std::min(kGradTokens, dlogits.tokens - token),
                                      .rows = grad.size(0),
                                      .b = packed_x[block],
                                      .c = grad.mutable_data_ptr<float>(),
                                      .write = block == 0 ? write : tensor::GradWrite::kAdd};
      multiply_transposed(kernels, product, begin, end);
    }
  });
}

}  // namespace

CrossEntropyRows panel_cross_entropy_forward(const Bf16Kernels& kernels, const CrossEntropyInput& input,
                                             int64_t kept_bytes) {
  const int64_t tokens = input.x.size(0);
  const TypedRowKernels& softmax_kernels = row_kernels(at::kBFloat16);
  const int64_t* labels = input.labels.const_data_ptr<int64_t>();
  const LogitBias bias(input.bias);
  // The slope of a soft cap is that of logits that were not rounded.
  const at::Tensor kept_logits =
      KeptLogits::allocate(input.soft_cap == 0 ? kept_bytes : 0, tokens, input.weight.size(0));
  const KeptLogits kept(kept_logits);
  std::vector<SoftmaxSums> sums(tokens);
  for (int64_t first = 0; first < input.weight.size(0); first += kForwardBlock) {
    const PackedB b = pack_columns(rows_of(input.weight, first, kForwardBlock));
    at::parallel_for(0, num_panels(tokens), 1, [&](int64_t begin, int64_t end) {
      for_each_row(kernels, input.x, b, {begin, end}, [&](int64_t token, int64_t column, float* logits, int64_t count) {
        bias.add(first + column, count, logits);
        cap_logits(logits, count, input.soft_cap);
        kept.keep(token, first + column, logits, count);
        softmax_kernels.softmax_accumulate({logits, count, labels[token] - first - column}, &sums[token]);
      });
    });
  }
  return {std::move(sums), kept_logits};
}

at::Tensor panel_cross_entropy_backward(const Bf16Kernels& kernels, const CrossEntropyInput& input,
                                        const CrossEntropyBackward& backward) {
  const int64_t tokens = input.x.size(0), hidden = input.x.size(1);
  const TypedRowKernels& softmax_kernels = row_kernels(at::kBFloat16);
  const int64_t* labels = input.labels.const_data_ptr<int64_t>();
  const LogitSources sources(backward, input.soft_cap);
  const LogitBias bias(input.bias);
  const KeptLogits kept(backward.kept_logits);

  at::Tensor dx;
  if (backward.input_grad) dx = at::zeros({tokens, hidden}, at::TensorOptions().dtype(at::kFloat));
  std::vector<PackedB> packed_x;
  for (int64_t first = 0; backward.weight_grad.defined() && first < tokens; first += kGradTokens)
    packed_x.push_back(pack_rows(rows_of(input.x, first, kGradTokens)));
  const at::Tensor storage = at::empty({num_panels(tokens) * kPanel * kBackwardBlock}, input.x.options());

  for (int64_t first = 0; first < input.weight.size(0); first += kBackwardBlock) {
    const at::Tensor rows = rows_of(input.weight, first, kBackwardBlock);
    const int64_t count = rows.size(0);
    const bool is_kept = kept.has(first, count);
    const PackedB columns = is_kept ? PackedB{} : pack_columns(rows),
                  packed_rows = dx.defined() ? pack_rows(rows) : PackedB{};
    const LogitGradients dlogits{mutable_bf16_data(storage), tokens, num_panels(count) * kPanel};
    const auto label_in = [&](int64_t token, int64_t column) { return labels[token] - first - column; };
    at::parallel_for(0, num_panels(tokens), 1, [&](int64_t begin, int64_t end) {
      const int64_t last = std::min(end * kPanel, tokens);
      if (is_kept)
        for (int64_t token = begin * kPanel; token < last; ++token)
          softmax_kernels.softmax_gradient_rounded({kept.row(token, first), count, label_in(token, 0)},
                                                   sources.of(token), dlogits.row(token));
      else
        for_each_row(kernels, input.x, columns, {begin, end},
                     [&](int64_t token, int64_t column, float* logits, int64_t n) {
                       bias.add(first + column, n, logits);
                       cap_logits(logits, n, input.soft_cap);
                       softmax_kernels.softmax_gradient({logits, n, label_in(token, column)}, sources.of(token),
                                                        dlogits.row(token) + column);
                     });
      for (int64_t token = begin * kPanel; token < last; ++token)
        std::fill(dlogits.row(token) + count, dlogits.row(token) + dlogits.stride, uint16_t{0});
      if (dx.defined()) add_input_grad(kernels, dlogits, packed_rows, {begin, end}, dx);
    });
    if (backward.weight_grad.defined())
      write_weight_grad(kernels, dlogits, packed_x, rows_of(backward.weight_grad, first, kBackwardBlock),
                        backward.weight_write);
    if (backward.bias_grad.defined()) {
      const at::Tensor rows_of_all = storage.narrow(0, 0, tokens * dlogits.stride).view({tokens, dlogits.stride});
      add_column_sums(rows_of_all.narrow(1, 0, count).contiguous(), backward.bias_grad.narrow(0, first, count));
    }
  }
  return dx.defined() ? dx.to(at::kBFloat16) : dx;
}

}  // namespace espalier::kernels
