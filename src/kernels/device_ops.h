// Where the ops of this folder find their computations when their tensors are not the CPU kernels' to compute.
//
// For every device an op checks its arguments, builds its graph and adds to its parameters' gradients in the same code;
// only what is computed comes from here. The CUDA plugin (src/cuda) implements the class: what it lacks does not
// compile. Formulas, roundings and random numbers are those of each op's header; sums may be taken in another order,
// but in the same one every time.
//
// All tensors of a call are on one device, are contiguous and have been checked; results are new tensors there.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "spec/fp8.h"

namespace espalier::spec {
struct OptimizerKind;
}  // namespace espalier::spec

namespace espalier::kernels {

enum class ActivationFunction;
struct ActivationBackward;
struct ActivationForward;
struct AttentionGradients;
struct AttentionProblem;
struct CrossEntropyBackward;
struct CrossEntropyInput;
struct DeviceTokens;
struct DrawSite;
struct DrawnLabels;
struct DropoutSite;
struct Measure;
struct Measured;
struct OptimizerUpdate;
struct PagedAttention;
struct QkNormBackward;
struct QkNormForward;
struct RmsNormBackward;
struct RmsNormForward;
struct RotaryRows;

class DeviceOps {
 public:
  virtual ~DeviceOps() = default;

  // kernels/matmul.h
  virtual at::Tensor matmul_forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) const = 0;
  // x weight^T as fp32, without rounding to the type of x.
  virtual at::Tensor matmul_to_fp32(const at::Tensor& x, const at::Tensor& weight) const = 0;
  virtual at::Tensor matmul_input_grad(const at::Tensor& dy, const at::Tensor& weight) const = 0;
  virtual void matmul_weight_grad(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& grad) const = 0;
  // Over all dimensions but the last: [columns] fp32.
  virtual at::Tensor column_sums(const at::Tensor& x) const = 0;

  // kernels/fp8_linear.h. A bf16 matrix as codes of one scale, Float8_e4m3fn or Float8_e5m2: as it lies, transposed,
  // or both. Products sum over what lies together in memory.
  enum class Fp8Sides { kPlain, kTransposed, kBoth };
  struct Fp8Matrix {
    at::Tensor plain, transposed;  // [rows, columns], [columns, rows]; undefined where not wanted
    at::Tensor scale;              // fp32 [1], multiplies the codes
  };
  virtual Fp8Matrix to_fp8(const at::Tensor& x, spec::Fp8Format format, Fp8Sides sides) const = 0;
  struct Fp8Codes {
    const at::Tensor &codes, &scale;
  };
  // to [m, n] = a [m, k] b^T (+ bias [n], unless undefined), or to += a b^T; b: [n, k]. `to`: bf16 or, without a bias,
  // fp32. Not both factors are e5m2. Where the device has no such product, the same numbers are multiplied in bf16, and
  // the result says why; else it is nullptr.
  virtual const char* fp8_product(const Fp8Codes& a, const Fp8Codes& b, const at::Tensor& bias, const at::Tensor& to,
                                  bool add) const = 0;

  // kernels/layer_norm.h; mean, rstd: [rows] fp32.
  struct Normalized {
    at::Tensor y, mean, rstd;
  };
  struct NormGradients {
    at::Tensor dx, weight, bias;  // of the parameters: [columns] fp32
  };
  virtual Normalized layer_norm_forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                        double epsilon) const = 0;
  // `normalized`: what forward returned, y not read.
  virtual NormGradients layer_norm_backward(const at::Tensor& x, const Normalized& normalized, const at::Tensor& weight,
                                            const at::Tensor& dy) const = 0;

  // kernels/rms_norm.h, kernels/qk_norm.h, kernels/rotary.h and kernels/activation.h: arguments as the CPU's row
  // kernels have them (kernels/internal/row_kernels.h), of tensors of `type`; results are in memory that the op has
  // allocated, gradients of parameters are returned, fp32.
  virtual void rms_norm_forward(at::ScalarType type, const RmsNormForward& args, int64_t rows) const = 0;
  virtual at::Tensor rms_norm_backward(at::ScalarType type, const RmsNormBackward& args, int64_t rows) const = 0;

  struct HeadGradients {
    at::Tensor query, key;  // [head_size]
  };
  virtual void qk_norm_forward(at::ScalarType type, const QkNormForward& args, int64_t rows) const = 0;
  virtual HeadGradients qk_norm_backward(at::ScalarType type, const QkNormBackward& args, int64_t rows) const = 0;

  virtual void rotate(at::ScalarType type, const RotaryRows& args, bool interleaved) const = 0;

  struct ActivationKind {
    ActivationFunction function;
    bool gated;
  };
  virtual void activation_forward(at::ScalarType type, const ActivationKind& kind, const ActivationForward& args,
                                  int64_t rows) const = 0;
  // The bias's gradient, undefined unless `with_bias`.
  virtual at::Tensor activation_backward(at::ScalarType type, const ActivationKind& kind,
                                         const ActivationBackward& args, int64_t rows, bool with_bias) const = 0;

  struct BiasGradients {
    at::Tensor dx, bias;  // of the bias: [columns] fp32; undefined where it was not wanted
  };
  // kernels/dropout.h; bias and residual may be undefined. x: [s, b, h].
  virtual at::Tensor dropout_forward(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& residual,
                                     const DropoutSite& site) const = 0;
  virtual BiasGradients dropout_backward(const at::Tensor& dy, const DropoutSite& site, bool with_bias) const = 0;

  // kernels/embedding.h
  virtual at::Tensor embedding_forward(const at::Tensor& ids, const at::Tensor& weight, int64_t first_row) const = 0;
  virtual void embedding_backward(const at::Tensor& ids, const at::Tensor& dy, const at::Tensor& grad,
                                  int64_t first_row) const = 0;

  // kernels/internal/attention_problem.h: pointers are the device's, but for sample_numbers and cache_lengths.
  virtual void attention_forward(const AttentionProblem& problem) const = 0;
  virtual void attention_backward(const AttentionProblem& problem, const AttentionGradients& gradients) const = 0;

  // kernels/paged_attention.h; pages hold [page_tokens, head_size] of each group, page_tokens is a power of two.
  virtual void append_to_pages(at::ScalarType type, const PagedAttention& args, const DeviceTokens& tokens) const = 0;
  virtual void paged_attention(at::ScalarType type, const PagedAttention& args, const DeviceTokens& tokens) const = 0;

  // kernels/cross_entropy_blocks.h; what is known of each token from the rows of `weight`, [tokens].
  struct SoftmaxRows {
    at::Tensor largest;      // fp32, minus infinity without rows
    at::Tensor sum;          // fp64, of exp(logit - largest)
    at::Tensor label_logit;  // fp32, 0 where the label is another shard's
    // Where they are wanted: logits that cross_entropy_backward need not compute again, in memory that it uses up.
    at::Tensor kept_logits;
  };
  virtual SoftmaxRows cross_entropy_forward(const CrossEntropyInput& input, bool keep_logits) const = 0;
  virtual at::Tensor cross_entropy_backward(const CrossEntropyInput& input,
                                            const CrossEntropyBackward& backward) const = 0;

  // kernels/draw_labels.h
  virtual DrawnLabels draw_labels(const at::Tensor& logits, int64_t first_row, const DrawSite& site) const = 0;

  // kernels/optimizer_update.h
  virtual void optimizer_update(const spec::OptimizerKind& kind, const std::vector<OptimizerUpdate>& updates) const = 0;
  virtual std::vector<Measured> measure(const std::vector<Measure>& of) const = 0;
};

// What computes for a tensor: nullptr for the CPU kernels. CHECKs that another device has its implementation.
const DeviceOps* device_ops(const at::Tensor& tensor);
const DeviceOps* device_ops(at::Device device);

// Makes `ops`, which lives as long as it is set, compute for all tensors on devices of that type. A test sets it for
// the CPU; nullptr gives that back to the CPU kernels.
void set_device_ops(c10::DeviceType type, const DeviceOps* ops);

}  // namespace espalier::kernels
