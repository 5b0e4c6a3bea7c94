// Cross entropy by fp32 products: for fp32, for fp16, and for bf16 without bf16 instructions.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <vector>

#include "kernels/cross_entropy_blocks.h"
#include "kernels/internal/row_dispatch.h"
#include "kernels/matmul.h"
#include "kernels/wide_product.h"

namespace espalier::kernels {
namespace {

// fp32 logits of one block, of all tokens.
constexpr int64_t kBlockBytes = 16 << 20;

// Rows first .. first + count - 1 of the weight.
struct Block {
  int64_t first, count;
};

template <class Visit>
void for_each_block(int64_t tokens, int64_t vocabulary, Visit visit) {
  const int64_t fitting = kBlockBytes / 4 / std::max<int64_t>(1, tokens) / 64;
  // An odd multiple: rows of logits at a distance that is a power of two would share a few sets of the caches.
  const int64_t size = std::max<int64_t>(1, (fitting - 1) | 1) * 64;
  for (int64_t first = 0; first < vocabulary; first += size) visit(Block{first, std::min(size, vocabulary - first)});
}

at::Tensor empty_floats(int64_t count) { return at::empty({count}, at::TensorOptions().dtype(at::kFloat)); }

// Logits of one block, [tokens, count] fp32: their place among the kept ones if they have one there, else in `buffer`,
// which is allocated at first use.
class LogitStorage {
 public:
  LogitStorage(int64_t tokens, at::Tensor kept) : tokens_(tokens), kept_(std::move(kept)) {}

  bool is_kept(const Block& block) const { return tokens_ * (block.first + block.count) <= kept_.numel(); }
  at::Tensor kept(const Block& block) const {
    return kept_.narrow(0, tokens_ * block.first, tokens_ * block.count).view({tokens_, block.count});
  }
  at::Tensor buffer(const Block& block) {
    if (!buffer_.defined()) buffer_ = empty_floats(tokens_ * block.count);  // no later block is larger
    return buffer_.narrow(0, 0, tokens_ * block.count).view({tokens_, block.count});
  }

 private:
  int64_t tokens_;
  at::Tensor kept_, buffer_;
};

at::Tensor rows_of(const at::Tensor& weight, const Block& block) { return weight.narrow(0, block.first, block.count); }
at::Tensor bias_of(const CrossEntropyInput& input, const Block& block) {
  return input.bias.defined() ? rows_of(input.bias, block) : input.bias;
}

}  // namespace

CrossEntropyRows wide_cross_entropy_forward(const CrossEntropyInput& input, bool keep_logits) {
  const int64_t tokens = input.x.size(0);
  const TypedRowKernels& kernels = row_kernels(input.x.scalar_type());
  const int64_t* labels = input.labels.const_data_ptr<int64_t>();
  const at::Tensor x = input.x.to(at::kFloat);
  std::vector<SoftmaxSums> sums(tokens);
  const int64_t all = tokens * input.weight.size(0);
  const at::Tensor kept = empty_floats(keep_logits ? std::min(kKeptLogitBytes / 4, all) : 0);
  LogitStorage storage(tokens, kept);
  for_each_block(tokens, input.weight.size(0), [&](const Block& block) {
    at::Tensor logits = storage.is_kept(block) ? storage.kept(block) : storage.buffer(block);
    wide_product(x, rows_of(input.weight, block).t(), bias_of(input, block), logits);
    float* values = logits.mutable_data_ptr<float>();
    at::parallel_for(0, tokens, 16, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        cap_logits(values + row * block.count, block.count, input.soft_cap);
        kernels.softmax_accumulate({values + row * block.count, block.count, labels[row] - block.first}, &sums[row]);
      }
    });
  });
  return {std::move(sums), kept};
}

at::Tensor wide_cross_entropy_backward(const CrossEntropyInput& input, const CrossEntropyBackward& backward) {
  const int64_t tokens = input.x.size(0);
  const TypedRowKernels& kernels = row_kernels(input.x.scalar_type());
  const int64_t* labels = input.labels.const_data_ptr<int64_t>();
  const LogitSources sources(backward, input.soft_cap);
  const at::Tensor x = input.x.to(at::kFloat);
  at::Tensor dx;
  if (backward.input_grad) dx = at::zeros(x.sizes(), x.options());
  LogitStorage storage(tokens, backward.kept_logits);
  for_each_block(tokens, input.weight.size(0), [&](const Block& block) {
    const at::Tensor weight_rows = rows_of(input.weight, block);
    at::Tensor dlogits = storage.buffer(block);
    if (!storage.is_kept(block)) wide_product(x, weight_rows.t(), bias_of(input, block), dlogits);
    // The kept logits stay as they are: a graph may be run backward twice.
    const bool is_kept = storage.is_kept(block);
    const at::Tensor logits = is_kept ? storage.kept(block) : dlogits;
    float* values = static_cast<float*>(logits.data_ptr());
    float* gradients = dlogits.mutable_data_ptr<float>();
    at::parallel_for(0, tokens, 16, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        if (!is_kept) cap_logits(values + row * block.count, block.count, input.soft_cap);
        kernels.softmax_gradient_fp32({values + row * block.count, block.count, labels[row] - block.first},
                                      sources.of(row), gradients + row * block.count);
      }
    });
    if (dx.defined()) add_wide_product(dlogits, weight_rows, dx);
    if (backward.weight_grad.defined())
      write_wide_product(dlogits.t(), x, rows_of(backward.weight_grad, block), backward.weight_write);
    if (backward.bias_grad.defined()) add_column_sums(dlogits, backward.bias_grad.narrow(0, block.first, block.count));
  });
  return dx.defined() ? dx.to(input.x.scalar_type()) : dx;
}

}  // namespace espalier::kernels
