// GFLOP/s of the three products of a linear layer, ours against ATen's, alternating, best and median of repeats.
//
//   OMP_NUM_THREADS=2 matmul_bench [REPEATS [bf16|fp32 [TOKENSxINPUTSxOUTPUTS...]]]     GPT-2 small's layers if none is
//   given
//
// For the weight gradient in bf16 ATen rounds to bf16 (at::mm), then adds to the fp32 accumulator, which is what
// PyTorch's users do; ours accumulates in fp32 directly. fp32: GPT-2 small's output layer as well, without its loss.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "base/cpu_isa.h"
#include "clock.h"
#include "kernels/matmul.h"
#include "tensor/cpu_allocator.h"

namespace {

using espalier::bench::seconds_of;

constexpr int64_t kGradBytes = 256 << 20;  // no cache holds that

struct Times {
  double best, median;
};

Times summary(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return {seconds.front(), seconds[seconds.size() / 2]};
}

void compare(const char* name, double flop, int repeats, const std::function<void()>& ours,
             const std::function<void()>& aten) {
  std::vector<double> our_seconds, aten_seconds;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    our_seconds.push_back(seconds_of(ours));
    aten_seconds.push_back(seconds_of(aten));
  }
  const Times a = summary(our_seconds), b = summary(aten_seconds);
  std::printf("  %-14s ours %6.0f (median %6.0f)   ATen %6.0f (median %6.0f)   x%.2f\n", name, flop / a.best / 1e9,
              flop / a.median / 1e9, flop / b.best / 1e9, flop / b.median / 1e9, b.best / a.best);
  std::fflush(stdout);
}

void measure(int64_t tokens, int64_t inputs, int64_t outputs, int repeats, at::ScalarType type) {
  using namespace espalier::kernels;
  const double flop = 2.0 * tokens * inputs * outputs;
  const auto options = at::TensorOptions().dtype(type);
  const at::Tensor x = at::randn({tokens, inputs}, options), weight = at::randn({outputs, inputs}, options);
  const at::Tensor dy = at::randn({tokens, outputs}, options);
  // A step adds to the gradients of one layer after another: each comes from memory.
  const int64_t num_grads = 1 + kGradBytes / (outputs * inputs * 4);
  std::vector<at::Tensor> grads;
  for (int64_t i = 0; i < num_grads; ++i) grads.push_back(at::zeros({outputs, inputs}, at::kFloat));
  size_t calls = 0;
  const auto next_grad = [&]() -> at::Tensor& { return grads[calls++ % grads.size()]; };
  std::printf("%ld tokens, %ld -> %ld\n", tokens, inputs, outputs);
  // Below AVX512-BF16 ATen's own loops over bf16 take minutes; fp32 products of widened operands are what one would
  // use.
  const at::ScalarType aten = espalier::cpu_isa() < espalier::CpuIsa::kAvx512Bf16 ? at::kFloat : type;
  compare(
      "y = x W^T", flop, repeats, [&] { matmul_forward(x, weight, {}); },
      [&] { at::mm(x.to(aten), weight.to(aten).t()).to(type); });
  compare(
      "dx = dy W", flop, repeats, [&] { matmul_input_grad(dy, weight); },
      [&] { at::mm(dy.to(aten), weight.to(aten)).to(type); });
  compare(
      "dW += dy^T x", flop, repeats, [&] { matmul_weight_grad(dy, x, next_grad(), espalier::tensor::GradWrite::kAdd); },
      [&] {
        if (type == at::kFloat)
          next_grad().addmm_(dy.t(), x);
        else
          next_grad().add_(at::mm(dy.to(aten).t(), x.to(aten)));
      });
  compare(
      "dW = dy^T x", flop, repeats,
      [&] { matmul_weight_grad(dy, x, next_grad(), espalier::tensor::GradWrite::kOverwrite); },
      [&] {
        at::Tensor grad = next_grad();
        if (type == at::kFloat)
          at::mm_out(grad, dy.t(), x);
        else
          grad.copy_(at::mm(dy.to(aten).t(), x.to(aten)));
      });
}

}  // namespace

int main(int argc, char** argv) {
  espalier::tensor::install_cpu_allocator();
  const int repeats = argc > 1 ? std::atoi(argv[1]) : 7;
  std::printf("%d threads, %s; GFLOP/s\n", at::get_num_threads(), cpu_isa_name(espalier::cpu_isa()));
  const at::ScalarType type = argc > 2 && std::string(argv[2]) == "fp32" ? at::kFloat : at::kBFloat16;
  for (int i = 3; i < argc; ++i) {
    int64_t tokens = 0, inputs = 0, outputs = 0;
    if (std::sscanf(argv[i], "%ldx%ldx%ld", &tokens, &inputs, &outputs) != 3)
      return std::fprintf(stderr, "matmul_bench: '%s' is not TOKENSxINPUTSxOUTPUTS\n", argv[i]), 2;
    measure(tokens, inputs, outputs, repeats, type);
  }
  if (argc > 3) return 0;
  for (const int64_t tokens : {1024, 4096}) {
    measure(tokens, 768, 2304, repeats, type);
    measure(tokens, 768, 768, repeats, type);
    measure(tokens, 768, 3072, repeats, type);
    measure(tokens, 3072, 768, repeats, type);
  }
  if (type == at::kFloat) measure(1024, 768, 50304, std::min(3, repeats), type);
  measure(2048, 256, 1024, repeats, type);
  measure(2048, 512, 8192, repeats, type);
  return 0;
}
