// Forward and backward of the output layer with its loss, ours against plain ATen (what PyTorch eager does under bf16
// autocast: bf16 logits, fp32 log-softmax, autograd): seconds, GFLOP/s of the three products, and peak memory.
//
//   OMP_NUM_THREADS=2 cross_entropy_bench ours|aten bf16|fp32 [tokens hidden vocabulary repeats soft_cap]
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <sys/resource.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "clock.h"
#include "kernels/linear_cross_entropy.h"
#include "tensor/cpu_allocator.h"

namespace {

using espalier::bench::now;

double peak_megabytes() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

struct Problem {
  at::Tensor x, labels, mask;
  espalier::tensor::Param weight;
};

at::Tensor ours(Problem& problem, double soft_cap) {
  static espalier::tensor::GradQueue queue;
  return espalier::kernels::linear_cross_entropy(problem.x, problem.weight, {problem.labels, problem.mask}, queue, {},
                                                 {.soft_cap = soft_cap})
      .sum;
}

at::Tensor aten(Problem& problem) {
  problem.weight.value.set_requires_grad(true);
  const at::Tensor logits = at::mm(problem.x, problem.weight.value.t());
  return at::cross_entropy_loss(logits.to(at::kFloat), problem.labels, {}, at::Reduction::Sum);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string who = argc > 1 ? argv[1] : "ours", type_name = argc > 2 ? argv[2] : "bf16";
  if (who == "ours") espalier::tensor::install_cpu_allocator();
  const auto argument = [&](int index, long otherwise) { return argc > index ? std::atol(argv[index]) : otherwise; };
  const int64_t tokens = argument(3, 4096), hidden = argument(4, 768), vocabulary = argument(5, 50304);
  const int64_t repeats = argument(6, 3);
  const auto soft_cap = static_cast<double>(argument(7, 0));
  const auto type = type_name == "bf16" ? at::kBFloat16 : at::kFloat;
  Problem problem{.x = at::randn({tokens, hidden}).to(type).requires_grad_(true),
                  .labels = at::randint(vocabulary, {tokens}, at::kLong),
                  .mask = at::ones({tokens}),
                  .weight = {}};
  problem.weight.value = (at::randn({vocabulary, hidden}) * 0.02).to(type);
  problem.weight.grad = at::zeros({vocabulary, hidden});
  const double before = peak_megabytes();
  std::vector<double> forward, backward;
  for (int64_t repeat = 0; repeat < repeats; ++repeat) {
    const double start = now();
    const at::Tensor loss = who == "ours" ? ours(problem, soft_cap) : aten(problem);
    const double middle = now();
    loss.backward();
    if (who == "aten") problem.weight.grad.add_(problem.weight.value.grad());
    forward.push_back(middle - start);
    backward.push_back(now() - middle);
    problem.x.mutable_grad().reset();
    problem.weight.value.mutable_grad().reset();
  }
  const double best_forward = *std::min_element(forward.begin(), forward.end());
  const double best_backward = *std::min_element(backward.begin(), backward.end());
  const double gflop = 2e-9 * static_cast<double>(tokens * hidden * vocabulary);
  std::printf(
      "%s %s %ld x %ld -> %ld, %d threads: forward %.3f s, backward %.3f s, %.0f GFLOP/s, peak memory + %.0f MB\n",
      who.c_str(), type_name.c_str(), tokens, hidden, vocabulary, at::get_num_threads(), best_forward, best_backward,
      3 * gflop / (best_forward + best_backward), peak_megabytes() - before);
  return 0;
}
