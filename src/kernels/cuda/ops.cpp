// The computations of kernels/device_ops.h on CUDA tensors: allocates results, and hands pointers to the kernels of
// launch.h on the current stream. Products go to cublasLt (products.h).
#include "kernels/cuda/ops.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/error.h"
#include "kernels/cross_entropy_blocks.h"
#include "kernels/cuda/attention_cudnn.h"
#include "kernels/cuda/fp8_products.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/optimizer_lists.h"
#include "kernels/cuda/products.h"
#include "kernels/cuda/stream.h"
#include "kernels/draw_labels.h"
#include "kernels/dropout.h"
#include "kernels/internal/drop_threshold.h"

namespace espalier::cuda {
namespace {

using kernels::CrossEntropyBackward;
using kernels::CrossEntropyInput;
using kernels::DeviceTokens;
using kernels::DropoutSite;
using kernels::PagedAttention;

Element element_of(at::ScalarType type) {
  if (type == at::kBFloat16) return Element::kBFloat16;
  if (type == at::kHalf) return Element::kHalf;
  ESPALIER_CHECK(type == at::kFloat, "compute type ", type);
  return Element::kFloat;
}
Element element_of(const at::Tensor& x) { return element_of(x.scalar_type()); }

at::Tensor empty_floats(at::IntArrayRef shape) {
  return at::empty(shape, at::TensorOptions().dtype(at::kFloat).device(current_device()));
}

int64_t rows_of(const at::Tensor& x) { return x.numel() / x.size(-1); }

// Memory for `count` column sums of one matrix.
struct SumStorage {
  SumStorage(int64_t rows, int64_t columns, int64_t count = 1)
      : partials(empty_floats({num_parts(rows), count, columns})), sums(empty_floats({count, columns})) {}
  ColumnSums pointers() const { return {partials.mutable_data_ptr<float>(), sums.mutable_data_ptr<float>()}; }
  at::Tensor partials, sums;
};

const void* data_or_null(const at::Tensor& x) { return x.defined() ? x.const_data_ptr() : nullptr; }

// Numbers of rows in host memory, such as the samples of a micro-batch, which every dropout and attention call of its
// passes names: on the device, sent once and found again as long as they are among the last that were asked for.
class RowNumbers {
 public:
  at::Tensor on_device(const int64_t* numbers, int64_t count) {
    const std::vector<int64_t> wanted(numbers, numbers + count);
    const std::lock_guard lock(mutex_);  // backward passes run on a thread of their own
    const auto known = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
      return entry.numbers == wanted && entry.on_device.device() == current_device();
    });
    if (known != entries_.end()) {
      entries_.splice(entries_.begin(), entries_, known);
      return known->on_device;
    }
    // From memory that is not pinned: the driver has its own copy when the call returns, and nobody waits for the
    // device.
    const at::Tensor sent = at::empty({count}, at::TensorOptions().dtype(at::kLong).device(current_device()));
    sent.copy_(at::from_blob(const_cast<int64_t*>(numbers), {count}, at::kLong), /*non_blocking=*/true);
    entries_.push_front({wanted, sent});
    if (entries_.size() > kMaxEntries) entries_.pop_back();
    return sent;
  }

 private:
  // More than the micro-batches that a stage has between forward and backward.
  static constexpr size_t kMaxEntries = 64;
  struct Entry {
    std::vector<int64_t> numbers;
    at::Tensor on_device;
  };
  std::mutex mutex_;
  std::list<Entry> entries_;  // the last one that was asked for comes first
};

at::Tensor on_device(const int64_t* numbers, int64_t count) {
  static auto* const known = new RowNumbers;  // stays: at the end of the process the device may be gone first
  return known->on_device(numbers, count);
}

Dropout dropout_rows(const at::Tensor& x, const DropoutSite& site, const at::Tensor& sample_numbers) {
  Dropout args{};
  args.x = x.const_data_ptr();
  args.columns = x.size(2);
  args.masked = site.probability > 0;
  args.key[0] = site.key.word[0];
  args.key[1] = site.key.word[1];
  args.sample_numbers = args.masked ? sample_numbers.const_data_ptr<int64_t>() : nullptr;
  args.num_samples = x.size(1);
  args.first_position = site.first_position;
  args.threshold = kernels::drop_threshold(site.probability);
  args.scale = static_cast<float>(1 / (1 - site.probability));
  return args;
}

at::Tensor numbers_of(const at::Tensor& x, const DropoutSite& site) {
  if (site.probability == 0) return {};
  return on_device(site.sample_numbers->data(), x.size(1));
}

// The vocabulary in blocks of about the same size: the logits of one block and all tokens fit into `bytes`, or are of
// the smallest block that products like.
class VocabularyBlocks {
 public:
  struct Block {
    int64_t first, count;  // rows of the weight
  };

  VocabularyBlocks(const CrossEntropyInput& input, int64_t bytes) : input_(input), vocabulary_(input.weight.size(0)) {
    if (vocabulary_ == 0) return;
    // With what is computed beside them: sums with a bias, and a cap's quotients, squares and slopes, in fp32.
    const int64_t logit_bytes =
        input.x.element_size() + (input.bias.defined() ? 4 : 0) + (input.soft_cap != 0 ? 12 : 0);
    const int64_t fitting = bytes / logit_bytes / std::max<int64_t>(1, tokens()) / kMultiple * kMultiple;
    const int64_t most = std::max(fitting, kMultiple);
    const int64_t number = (vocabulary_ + most - 1) / most;
    size_ = std::min(vocabulary_, ((vocabulary_ + number - 1) / number + kMultiple - 1) / kMultiple * kMultiple);
    for (int64_t first = 0; first < vocabulary_; first += size_)
      blocks_.push_back({first, std::min(size_, vocabulary_ - first)});
  }

  const std::vector<Block>& blocks() const { return blocks_; }
  at::Tensor storage() const { return at::empty({tokens() * size_}, input_.x.options()); }
  at::Tensor logits_in(const at::Tensor& storage, const Block& block) const {
    return storage.narrow(0, 0, tokens() * block.count).view({tokens(), block.count});
  }
  at::Tensor weight_rows(const Block& block) const { return input_.weight.narrow(0, block.first, block.count); }

  at::Tensor compute(const at::Tensor& storage, const Block& block) const {
    const at::Tensor logits = logits_in(storage, block);
    if (input_.bias.defined()) {  // in fp32 to the end: logits are rounded once
      const at::Tensor sums = empty_floats(logits.sizes());
      sums.copy_(input_.bias.narrow(0, block.first, block.count).expand(logits.sizes()));
      multiply_transposed(input_.x, weight_rows(block), sums, /*add=*/true);
      logits.copy_(sums);
    } else {
      multiply_transposed(input_.x, weight_rows(block), logits);
    }
    if (input_.soft_cap != 0) logits.copy_(logits.to(at::kFloat).div_(input_.soft_cap).tanh_().mul_(input_.soft_cap));
    return logits;
  }

 private:
  static constexpr int64_t kMultiple = 128;
  int64_t tokens() const { return input_.x.size(0); }

  const CrossEntropyInput& input_;
  const int64_t vocabulary_;
  int64_t size_ = 0;
  std::vector<Block> blocks_;
};

LogitBlock block_of(const CrossEntropyInput& input, const at::Tensor& logits, int64_t first) {
  return {logits.mutable_data_ptr(), input.labels.const_data_ptr<int64_t>(), logits.size(0), logits.size(1), first};
}

// The problem with what it says of rows on the device; `numbers` keeps that.
AttentionProblem with_numbers(const AttentionProblem& problem, at::Tensor (&numbers)[2]) {
  AttentionProblem moved = problem;
  const auto move = [&](const int64_t*& of_rows, at::Tensor& kept) {
    if (of_rows == nullptr) return;
    kept = on_device(of_rows, problem.batch);
    of_rows = kept.const_data_ptr<int64_t>();
  };
  move(moved.sample_numbers, numbers[0]);
  move(moved.cache_lengths, numbers[1]);
  return moved;
}

// In the place of the logits of a block.
void put_gradient(const CrossEntropyInput& input, const CrossEntropyBackward& backward, const at::Tensor& logits,
                  int64_t first) {
  const LogitGradients from{backward.log_sum_exp.const_data_ptr<float>(), backward.token_grads.const_data_ptr<float>(),
                            backward.log_grads.defined() ? backward.log_grads.const_data_ptr<float>() : nullptr};
  const at::Tensor slopes = input.soft_cap == 0 ? at::Tensor() : 1 - (logits.to(at::kFloat) / input.soft_cap).square();
  softmax_gradient(element_of(logits), block_of(input, logits, first), from, current_stream());
  if (slopes.defined()) logits.copy_(logits.to(at::kFloat).mul_(slopes));
}

class CudaOps : public kernels::DeviceOps {
 public:
  // logit_bytes: nothing where the device's memory tells.
  explicit CudaOps(std::optional<int64_t> logit_bytes) : logit_bytes_(logit_bytes) {}

  at::Tensor matmul_forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) const override {
    const at::Tensor y = at::empty({x.size(0), weight.size(0)}, x.options());
    if (bias.defined())
      multiply_transposed_with_bias(x, weight, bias, y);
    else
      multiply_transposed(x, weight, y);
    return y;
  }

  at::Tensor matmul_to_fp32(const at::Tensor& x, const at::Tensor& weight) const override {
    const at::Tensor y = empty_floats({x.size(0), weight.size(0)});
    multiply_transposed(x, weight, y);
    return y;
  }

  at::Tensor matmul_input_grad(const at::Tensor& dy, const at::Tensor& weight) const override {
    const at::Tensor dx = at::empty({dy.size(0), weight.size(1)}, dy.options());
    multiply(dy, weight, dx);
    return dx;
  }

  void matmul_weight_grad(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& grad) const override {
    add_transposed_product(dy, x, grad);
  }

  at::Tensor column_sums(const at::Tensor& x) const override {
    if (x.numel() == 0) return at::zeros({x.size(-1)}, x.options().dtype(at::kFloat));
    const SumStorage storage(rows_of(x), x.size(-1));
    cuda::column_sums(element_of(x), x.const_data_ptr(), rows_of(x), x.size(-1), storage.pointers(), current_stream());
    return storage.sums[0];
  }

  Fp8Matrix to_fp8(const at::Tensor& x, spec::Fp8Format format, Fp8Sides sides) const override {
    const auto type = format == spec::Fp8Format::kE4M3 ? at::kFloat8_e4m3fn : at::kFloat8_e5m2;
    const int64_t rows = x.size(0), columns = x.size(1);
    Fp8Matrix result;
    if (sides != Fp8Sides::kTransposed) result.plain = at::empty({rows, columns}, x.options().dtype(type));
    if (sides != Fp8Sides::kPlain) result.transposed = at::empty({columns, rows}, x.options().dtype(type));
    if (x.numel() == 0) {
      result.scale = at::ones({1}, x.options().dtype(at::kFloat));
      return result;
    }
    result.scale = empty_floats({1});
    const at::Tensor parts = empty_floats({fp8_parts(x.numel())});
    const auto codes_of = [](const at::Tensor& codes) {
      return codes.defined() ? static_cast<uint8_t*>(codes.mutable_data_ptr()) : nullptr;
    };
    fp8_codes({.x = x.const_data_ptr(),
               .format = format,
               .codes = codes_of(result.plain),
               .transposed = codes_of(result.transposed),
               .scale = result.scale.mutable_data_ptr<float>(),
               .parts = parts.mutable_data_ptr<float>()},
              rows, columns, current_stream());
    return result;
  }

  const char* fp8_product(const Fp8Codes& a, const Fp8Codes& b, const at::Tensor& bias, const at::Tensor& to,
                          bool add) const override {
    return multiply_codes({a.codes, a.scale}, {b.codes, b.scale}, bias, to, add);
  }

  Normalized layer_norm_forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                double epsilon) const override {
    const int64_t rows = rows_of(x);
    Normalized result{at::empty_like(x), empty_floats({rows}), empty_floats({rows})};
    cuda::layer_norm_forward(element_of(x),
                             {.x = x.const_data_ptr(),
                              .weight = weight.const_data_ptr(),
                              .bias = bias.const_data_ptr(),
                              .y = result.y.mutable_data_ptr(),
                              .mean = result.mean.mutable_data_ptr<float>(),
                              .rstd = result.rstd.mutable_data_ptr<float>(),
                              .columns = x.size(-1),
                              .epsilon = static_cast<float>(epsilon)},
                             rows, current_stream());
    return result;
  }

  NormGradients layer_norm_backward(const at::Tensor& x, const Normalized& normalized, const at::Tensor& weight,
                                    const at::Tensor& dy) const override {
    const at::Tensor dx = at::empty_like(dy);
    const SumStorage storage(rows_of(dy), dy.size(-1), 2);
    cuda::layer_norm_backward(element_of(dy),
                              {.x = x.const_data_ptr(),
                               .weight = weight.const_data_ptr(),
                               .dy = dy.const_data_ptr(),
                               .dx = dx.mutable_data_ptr(),
                               .mean = normalized.mean.const_data_ptr<float>(),
                               .rstd = normalized.rstd.const_data_ptr<float>(),
                               .columns = dy.size(-1)},
                              rows_of(dy), storage.pointers(), current_stream());
    return {dx, storage.sums[0], storage.sums[1]};
  }

  void rms_norm_forward(at::ScalarType type, const kernels::RmsNormForward& args, int64_t rows) const override {
    cuda::rms_norm_forward(element_of(type), args, rows, current_stream());
  }
  at::Tensor rms_norm_backward(at::ScalarType type, const kernels::RmsNormBackward& args, int64_t rows) const override {
    const SumStorage storage(rows, args.columns);
    cuda::rms_norm_backward(element_of(type), args, rows, storage.pointers(), current_stream());
    return storage.sums[0];
  }

  void qk_norm_forward(at::ScalarType type, const kernels::QkNormForward& args, int64_t rows) const override {
    cuda::qk_norm_forward(element_of(type), args, rows, current_stream());
  }
  HeadGradients qk_norm_backward(at::ScalarType type, const kernels::QkNormBackward& args,
                                 int64_t rows) const override {
    const SumStorage storage(rows, args.head_size, 2);
    cuda::qk_norm_backward(element_of(type), args, rows, storage.pointers(), current_stream());
    return {storage.sums[0], storage.sums[1]};
  }

  void rotate(at::ScalarType type, const kernels::RotaryRows& args, bool interleaved) const override {
    cuda::rotate(element_of(type), args, interleaved, current_stream());
  }

  void activation_forward(at::ScalarType type, const ActivationKind& kind, const kernels::ActivationForward& args,
                          int64_t rows) const override {
    cuda::activation_forward(element_of(type), {kind.function, kind.gated}, args, rows, current_stream());
  }
  at::Tensor activation_backward(at::ScalarType type, const ActivationKind& kind,
                                 const kernels::ActivationBackward& args, int64_t rows, bool with_bias) const override {
    const Activation activation{kind.function, kind.gated};
    if (!with_bias) {
      cuda::activation_backward(element_of(type), activation, args, rows, nullptr, current_stream());
      return {};
    }
    const SumStorage storage(rows, (kind.gated ? 2 : 1) * args.columns);
    const ColumnSums sums = storage.pointers();
    cuda::activation_backward(element_of(type), activation, args, rows, &sums, current_stream());
    return storage.sums[0];
  }

  at::Tensor dropout_forward(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& residual,
                             const DropoutSite& site) const override {
    const at::Tensor y = at::empty_like(x), numbers = numbers_of(x, site);
    Dropout args = dropout_rows(x, site, numbers);
    args.bias = data_or_null(bias);
    args.residual = data_or_null(residual);
    args.y = y.mutable_data_ptr();
    dropout(element_of(x), args, rows_of(x), nullptr, current_stream());
    return y;
  }

  BiasGradients dropout_backward(const at::Tensor& dy, const DropoutSite& site, bool with_bias) const override {
    const at::Tensor dx = at::empty_like(dy), numbers = numbers_of(dy, site);
    Dropout args = dropout_rows(dy, site, numbers);
    args.y = dx.mutable_data_ptr();
    if (!with_bias) {
      dropout(element_of(dy), args, rows_of(dy), nullptr, current_stream());
      return {dx, {}};
    }
    const SumStorage storage(rows_of(dy), dy.size(-1));
    const ColumnSums sums = storage.pointers();
    dropout(element_of(dy), args, rows_of(dy), &sums, current_stream());
    return {dx, storage.sums[0]};
  }

  at::Tensor embedding_forward(const at::Tensor& ids, const at::Tensor& weight, int64_t first_row) const override {
    const at::Tensor y = at::empty({ids.size(1), ids.size(0), weight.size(1)}, weight.options());
    cuda::embedding_forward(element_of(weight),
                            {.ids = ids.const_data_ptr<int64_t>(),
                             .weight = weight.const_data_ptr(),
                             .y = y.mutable_data_ptr(),
                             .num_samples = ids.size(0),
                             .length = ids.size(1),
                             .columns = weight.size(1),
                             .first_row = first_row,
                             .num_rows = weight.size(0)},
                            current_stream());
    return y;
  }

  void embedding_backward(const at::Tensor& ids, const at::Tensor& dy, const at::Tensor& grad,
                          int64_t first_row) const override {
    const auto [sorted_ids, order] = at::sort(ids.t().reshape({-1}), /*stable=*/true, /*dim=*/0, /*descending=*/false);
    const at::Tensor partials = empty_floats({embedding_partials(ids.numel()), grad.size(1)});
    cuda::embedding_backward(element_of(dy),
                             {.sorted_ids = sorted_ids.const_data_ptr<int64_t>(),
                              .order = order.const_data_ptr<int64_t>(),
                              .dy = dy.const_data_ptr(),
                              .grad = grad.mutable_data_ptr<float>(),
                              .partials = partials.mutable_data_ptr<float>(),
                              .num_tokens = ids.numel(),
                              .columns = grad.size(1),
                              .first_row = first_row,
                              .num_rows = grad.size(0)},
                             current_stream());
  }

  void attention_forward(const AttentionProblem& problem) const override {
    if (problem.backend == spec::AttentionBackend::kCudnn) return attention_forward_cudnn(problem);
    at::Tensor numbers[2];
    cuda::attention_forward(with_numbers(problem, numbers), current_stream());
  }

  void append_to_pages(at::ScalarType type, const PagedAttention& args, const DeviceTokens& tokens) const override {
    cuda::append_to_pages(element_of(type), args, tokens, current_stream());
  }
  void paged_attention(at::ScalarType type, const PagedAttention& args, const DeviceTokens& tokens) const override {
    const int64_t count = paged_partials(args, tokens);
    at::Tensor partials;
    if (count > 0) partials = empty_floats({count});
    cuda::paged_attention(element_of(type), args, tokens,
                          partials.defined() ? partials.mutable_data_ptr<float>() : nullptr, current_stream());
  }

  void attention_backward(const AttentionProblem& problem, const AttentionGradients& gradients) const override {
    if (problem.backend == spec::AttentionBackend::kCudnn) return attention_backward_cudnn(problem, gradients);
    at::Tensor numbers[2];
    const at::Tensor row_dots = empty_floats({problem.batch, problem.heads(), problem.num_queries});
    at::Tensor diagonals;
    if (gradients.relative_bias != nullptr)
      diagonals = empty_floats({problem.batch, problem.heads(), attention_diagonals(problem)});
    cuda::attention_backward(with_numbers(problem, numbers), gradients,
                             {.row_dots = row_dots.mutable_data_ptr<float>(),
                              .diagonals = diagonals.defined() ? diagonals.mutable_data_ptr<float>() : nullptr},
                             current_stream());
  }

  // Keeps the logits of the last block, in the memory in which all were computed.
  SoftmaxRows cross_entropy_forward(const CrossEntropyInput& input, bool keep_logits) const override {
    const int64_t tokens = input.x.size(0);
    SoftmaxRows rows{
        empty_floats({tokens}), at::empty({tokens}, input.x.options().dtype(at::kDouble)), empty_floats({tokens}), {}};
    const SoftmaxState state{rows.largest.mutable_data_ptr<float>(), rows.sum.mutable_data_ptr<double>(),
                             rows.label_logit.mutable_data_ptr<float>()};
    softmax_begin(state, tokens, current_stream());
    const VocabularyBlocks vocabulary(input, logit_bytes_.value_or(logit_bytes_of(device_bytes())));
    const at::Tensor storage = vocabulary.storage();
    for (const VocabularyBlocks::Block& block : vocabulary.blocks()) {
      const at::Tensor logits = vocabulary.compute(storage, block);
      softmax_accumulate(element_of(logits), block_of(input, logits, block.first), state, current_stream());
    }
    if (keep_logits) rows.kept_logits = storage;
    return rows;
  }

  // Begins with the block whose logits were kept: the memory then serves the others.
  at::Tensor cross_entropy_backward(const CrossEntropyInput& input,
                                    const CrossEntropyBackward& backward) const override {
    const VocabularyBlocks vocabulary(input, logit_bytes_.value_or(logit_bytes_of(device_bytes())));
    // One block's product is the whole gradient, rounded once; several are added in fp32.
    const bool is_one = vocabulary.blocks().size() == 1;
    at::Tensor dx;
    if (backward.input_grad)
      dx = at::zeros(input.x.sizes(), is_one ? input.x.options() : input.x.options().dtype(at::kFloat));
    const bool kept = backward.kept_logits.numel() > 0;
    const at::Tensor storage = kept ? backward.kept_logits : vocabulary.storage();
    for (auto block = vocabulary.blocks().rbegin(); block != vocabulary.blocks().rend(); ++block) {
      const bool known = kept && block == vocabulary.blocks().rbegin();
      const at::Tensor logits = known ? vocabulary.logits_in(storage, *block) : vocabulary.compute(storage, *block);
      put_gradient(input, backward, logits, block->first);
      const at::Tensor weight_rows = vocabulary.weight_rows(*block);
      if (dx.defined()) multiply(logits, weight_rows, dx, /*add=*/!is_one);
      if (backward.weight_grad.defined())
        add_transposed_product(logits, input.x, backward.weight_grad.narrow(0, block->first, block->count));
      if (backward.bias_grad.defined())
        backward.bias_grad.narrow(0, block->first, block->count).add_(column_sums(logits));
    }
    return dx.defined() ? dx.to(input.x.scalar_type()) : dx;
  }

  kernels::DrawnLabels draw_labels(const at::Tensor& logits, int64_t first_row,
                                   const kernels::DrawSite& site) const override {
    const int64_t samples = logits.size(1), tokens = logits.size(0) * samples;
    const at::IntArrayRef shape = logits.sizes().slice(0, 2);
    kernels::DrawnLabels drawn{at::empty(shape, logits.options().dtype(at::kLong)),
                               at::empty(shape, logits.options().dtype(at::kDouble))};
    const at::Tensor numbers = on_device(site.sample_numbers->data(), samples);
    cuda::draw_labels({.logits = logits.const_data_ptr<float>(),
                       .num_rows = logits.size(2),
                       .first_row = first_row,
                       .key = {site.key.word[0], site.key.word[1]},
                       .sample_numbers = numbers.const_data_ptr<int64_t>(),
                       .num_samples = samples,
                       .first_position = site.first_position,
                       .rows = drawn.rows.mutable_data_ptr<int64_t>(),
                       .scores = drawn.scores.mutable_data_ptr<double>()},
                      tokens, current_stream());
    return drawn;
  }

  void optimizer_update(const spec::OptimizerKind& kind,
                        const std::vector<kernels::OptimizerUpdate>& updates) const override {
    if (!updates.empty()) update_all(kind, element_of(updates[0].tensors.value), updates);
  }
  std::vector<kernels::Measured> measure(const std::vector<kernels::Measure>& of) const override {
    return measure_all(of);
  }

 private:
  const std::optional<int64_t> logit_bytes_;
};

}  // namespace

const kernels::DeviceOps& ops() {
  static const CudaOps instance(std::nullopt);
  return instance;
}

std::unique_ptr<kernels::DeviceOps> make_ops(int64_t logit_bytes) { return std::make_unique<CudaOps>(logit_bytes); }

}  // namespace espalier::cuda
