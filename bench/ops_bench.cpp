// Milliseconds of the element-wise and row-wise ops, ours against what PyTorch's users run, alternating; best of
// repeats.
//
//   OMP_NUM_THREADS=2 ops_bench [repeats]
//
// "aten" is ATen's own fused op where there is one, composed as Megatron's eager path does it elsewhere. GB/s counts
// what an op must read and write at least. With one thread the thread's CPU time is taken, which other programs do not
// lengthen; else the wall clock.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "base/cpu_isa.h"
#include "clock.h"
#include "kernels/activation.h"
#include "kernels/dropout.h"
#include "kernels/embedding.h"
#include "kernels/internal/row_dispatch.h"
#include "kernels/layer_norm.h"
#include "kernels/newton_schulz.h"
#include "kernels/optimizer_update.h"
#include "kernels/rms_norm.h"
#include "kernels/rotary.h"
#include "spec/state_storage.h"

namespace {

using espalier::bench::milliseconds_of;

using namespace espalier;
using namespace espalier::kernels;

struct Bench {
  int repeats;
  int64_t rows, columns;
  at::ScalarType type;

  void compare(const char* name, double bytes, const std::function<void()>& ours,
               const std::function<void()>& aten) const {
    double best_ours = 1e9, best_aten = 1e9;
    for (int repeat = 0; repeat < repeats; ++repeat) {
      best_ours = std::min(best_ours, milliseconds_of(ours));
      best_aten = std::min(best_aten, milliseconds_of(aten));
    }
    std::printf("%-8s %4ldx%-5ld %-26s ours %8.3f ms (%5.1f GB/s)   aten %8.3f ms   x%.2f\n", c10::toString(type), rows,
                columns, name, best_ours, bytes / best_ours * 1e-6, best_aten, best_aten / best_ours);
    std::fflush(stdout);
  }
  at::Tensor random() const { return at::randn({rows, columns}).to(type); }
  // Bytes of `count` tensors of rows x columns.
  double tensors(int count) const { return static_cast<double>(count * rows * columns) * c10::elementSize(type); }
};

tensor::Param param(const at::Tensor& value) {
  return {.spec = nullptr, .value = value, .grad = at::zeros(value.sizes(), at::kFloat)};
}

// Backward of ATen's ops: their functions of autograd, called without the graph.
void layer_norm_bench(const Bench& bench) {
  tensor::Param weight = param(at::randn({bench.columns}).to(bench.type)),
                bias = param(at::randn({bench.columns}).to(bench.type));
  tensor::GradQueue queue;
  const at::Tensor x = bench.random(), dy = bench.random(), leaf = x.detach().requires_grad_();
  bench.compare(
      "layer_norm", bench.tensors(2), [&] { layer_norm(x, weight, bias, 1e-5, queue); },
      [&] { at::native_layer_norm(x, {bench.columns}, weight.value, bias.value, 1e-5); });
  at::Tensor y = layer_norm(leaf, weight, bias, 1e-5, queue);
  const auto [y_aten, mean, rstd] = at::native_layer_norm(x, {bench.columns}, weight.value, bias.value, 1e-5);
  bench.compare(
      "layer_norm backward", bench.tensors(3), [&] { torch::autograd::grad({y}, {leaf}, {dy}, true); },
      [&, mean = mean, rstd = rstd] {
        at::native_layer_norm_backward(dy, x, {bench.columns}, mean, rstd, weight.value, bias.value,
                                       {true, true, true});
      });
}

void rms_norm_bench(const Bench& bench) {
  tensor::Param weight = param(at::randn({bench.columns}).to(bench.type));
  tensor::GradQueue queue;
  const at::Tensor x = bench.random(), dy = bench.random(), leaf = x.detach().requires_grad_();
  bench.compare(
      "rms_norm", bench.tensors(2), [&] { rms_norm(x, weight, 1e-5, queue); },
      [&] { at::rms_norm(x, {bench.columns}, weight.value, 1e-5); });
  at::Tensor y = rms_norm(leaf, weight, 1e-5, queue);
  const at::Tensor aten_leaf = x.detach().requires_grad_(), aten_weight = weight.value.detach().requires_grad_();
  const at::Tensor y_aten = at::rms_norm(aten_leaf, {bench.columns}, aten_weight, 1e-5);
  bench.compare(
      "rms_norm backward", bench.tensors(3), [&] { torch::autograd::grad({y}, {leaf}, {dy}, true); },
      [&] {
        torch::autograd::grad({y_aten}, {aten_leaf, aten_weight}, {dy}, true);
      });
}

// 3/4 of the columns are queries and keys of heads of 64; ATen: x cos + rotate_half(x) sin, as Transformers has it.
void rotary_bench(const Bench& bench, bool interleaved) {
  constexpr int64_t kHeadSize = 64, kSamples = 4;
  const int64_t heads = bench.columns / (4 * kHeadSize), length = bench.rows / kSamples;  // 2 queries for each key
  const at::Tensor angle = at::arange(length).view({-1, 1}) * at::randn({1, kHeadSize / 2});
  const RotaryTable table{at::cos(angle).contiguous(), at::sin(angle).contiguous()};
  const at::Tensor positions = at::arange(length).repeat({kSamples, 1}).contiguous();
  const at::Tensor qkv = bench.random().view({length, kSamples, bench.columns});
  const auto wide = [&](const at::Tensor& x) {
    return at::cat({x, x}, 1).to(bench.type).view({length, 1, 1, kHeadSize});
  };
  const at::Tensor cosine = wide(table.cosine), sine = wide(table.sine);
  const at::Tensor turned =
      bench.random().narrow(1, 0, 3 * heads * kHeadSize).contiguous().view({length, kSamples, -1, kHeadSize});
  bench.compare(
      interleaved ? "rotary interleaved" : "rotary halves", bench.tensors(2),
      [&] {
        rotary(qkv, table, positions, {2 * heads, heads}, kHeadSize, interleaved);
      },
      [&] {
        const at::Tensor half =
            at::cat({-turned.narrow(3, kHeadSize / 2, kHeadSize / 2), turned.narrow(3, 0, kHeadSize / 2)}, 3);
        turned* cosine + half* sine;
      });
}

void swiglu_bench(const Bench& bench) {
  tensor::GradQueue queue;
  const at::Tensor x = at::randn({bench.rows, 2 * bench.columns}).to(bench.type), dy = bench.random();
  const at::Tensor leaf = x.detach().requires_grad_(), aten_leaf = x.detach().requires_grad_();
  const auto aten = [](const at::Tensor& both) {
    const std::vector<at::Tensor> halves = at::chunk(both, 2, -1);
    return at::silu(halves[0]) * halves[1];
  };
  bench.compare(
      "swiglu", bench.tensors(3), [&] { bias_activation(x, nullptr, spec::Activation::kSwiglu, queue); },
      [&] { aten(x); });
  at::Tensor y = bias_activation(leaf, nullptr, spec::Activation::kSwiglu, queue), y_aten = aten(aten_leaf);
  bench.compare(
      "swiglu backward", bench.tensors(5), [&] { torch::autograd::grad({y}, {leaf}, {dy}, true); },
      [&] { torch::autograd::grad({y_aten}, {aten_leaf}, {dy}, true); });
}

void gelu_bench(const Bench& bench, spec::Activation form, const char* name, const char* approximation) {
  tensor::Param bias = param(at::randn({bench.columns}).to(bench.type));
  tensor::GradQueue queue;
  const at::Tensor x = bench.random(), dy = bench.random(), leaf = x.detach().requires_grad_();
  const std::string forward = std::string("bias_gelu ") + name;
  bench.compare(
      forward.c_str(), bench.tensors(2), [&] { bias_activation(x, &bias, form, queue); },
      [&] { at::gelu(x + bias.value, approximation); });
  at::Tensor y = bias_activation(leaf, &bias, form, queue);
  const at::Tensor sum = x + bias.value;
  bench.compare((forward + " backward").c_str(), bench.tensors(3),
                [&] { torch::autograd::grad({y}, {leaf}, {dy}, true); },
                [&] { at::gelu_backward(dy, sum, approximation).sum(0); });
}

void dropout_bench(const Bench& bench, double probability) {
  tensor::Param bias = param(at::randn({bench.columns}).to(bench.type));
  tensor::GradQueue queue;
  const std::vector<int64_t> samples = {1, 2, 3, 4};
  const DropoutSite site{.probability = probability, .key = {{1, 2}}, .sample_numbers = &samples};
  const std::vector<int64_t> shape = {bench.rows / 4, 4, bench.columns};
  const at::Tensor x = bench.random().view(shape), residual = bench.random().view(shape),
                   dy = bench.random().view(shape);
  const at::Tensor leaf = x.detach().requires_grad_();
  const std::string name = probability > 0 ? "bias_dropout_add" : "bias_add p=0";
  bench.compare(
      name.c_str(), bench.tensors(3), [&] { bias_dropout_add(x, &bias, residual, site, queue); },
      [&] { residual + at::dropout(x + bias.value, probability, true); });
  at::Tensor y = bias_dropout_add(leaf, &bias, residual, site, queue);
  const at::Tensor mask = at::empty_like(x).bernoulli_(1 - probability).div_(1 - probability);
  bench.compare((name + " backward").c_str(), bench.tensors(probability > 0 ? 2 : 1),
                [&] { torch::autograd::grad({y}, {leaf}, {dy}, true); },
                [&] {
                  if (probability > 0)
                    (dy * mask).view({-1, bench.columns}).sum(0);
                  else
                    dy.view({-1, bench.columns}).sum(0);
                });
}

void column_sums_bench(const Bench& bench) {
  const at::Tensor dy = bench.random();
  bench.compare(
      "column sums", bench.tensors(1), [&] { column_sums(dy); }, [&] { at::sum(dy, {0}, false, at::kFloat); });
}

void embedding_bench(const Bench& bench) {
  constexpr int64_t kVocabulary = 50304;
  tensor::Param weight = param(at::randn({kVocabulary, bench.columns}).to(bench.type));
  tensor::GradQueue queue;
  const at::Tensor ids = at::randint(0, kVocabulary, {4, bench.rows / 4}, at::kLong);
  const at::Tensor dy = bench.random().view({bench.rows / 4, 4, bench.columns});
  bench.compare(
      "embedding", bench.tensors(2),
      [&] {
        const at::NoGradGuard no_grad;
        embedding(ids, weight, queue);
      },
      [&] { at::embedding(weight.value, ids.t()); });
  bench.compare(
      "embedding backward", bench.tensors(1) + 8.0 * static_cast<double>(bench.rows * bench.columns),
      [&] { embedding(ids, weight, queue).backward(dy); },
      [&] { at::embedding_dense_backward(dy, ids.t(), kVocabulary, -1, false); });
}

// Every optimizer against ATen's AdamW, whatever it computes.
void optimizer_bench(const Bench& bench) {
  const at::Tensor master = at::randn({bench.rows, bench.columns}), m = at::zeros_like(master),
                   v = at::zeros_like(master);
  const at::Tensor grad = at::randn({bench.rows, bench.columns});
  const at::Tensor value = bench.type == at::kFloat ? master : master.to(bench.type);
  at::Tensor step = at::ones({});
  for (const spec::OptimizerKind& kind : spec::optimizer_kinds()) {
    OptimizerTensors tensors{.master = master.clone(), .states = {}, .grad = grad.clone(), .value = value};
    if (bench.type == at::kFloat) tensors.value = tensors.master;
    for (size_t state = 0; state < kind.states.size(); ++state) tensors.states.push_back(at::zeros_like(master));
    const double bytes = 4.0 * static_cast<double>((3 + 2 * kind.states.size()) * master.numel()) +
                         (bench.type == at::kFloat ? 0 : bench.tensors(1));
    const spec::OptimizerConstants constants = kind.constants({}, {.lr = 1e-4, .weight_decay = 0.1, .number = 10});
    bench.compare(
        kind.is_variant ? (kind.name() + " variant").c_str() : kind.name().c_str(), bytes,
        [&] {
          optimizer_update(kind, {{tensors, constants}});
        },
        [&] {
          at::_fused_adamw_({master}, {grad}, {m}, {v}, {}, {step}, 1e-4, 0.9, 0.999, 0.1, 1e-8, false, false);
          if (bench.type != at::kFloat) at::Tensor(value).copy_(master);
        });
  }
  for (const spec::StateType type : {spec::StateType::kBf16, spec::StateType::kFp8}) {
    const spec::OptimizerKind& kind = spec::optimizer_kind({.exp_avg_dtype = type, .exp_avg_sq_dtype = type});
    const bool is_bf16 = type == spec::StateType::kBf16;
    const at::Tensor moments =
        at::zeros({spec::stored_count(type, master.numel())}, is_bf16 ? at::kBFloat16 : at::kByte);
    const StateRounding rounding{.key = {{1, 2}}, .step = 10, .runs = runs_tensor({{0, 0, master.numel()}}, at::kCPU)};
    OptimizerTensors tensors{.master = master.clone(),
                             .states = {moments, moments.clone()},
                             .grad = grad.clone(),
                             .value = value,
                             .rounding = &rounding};
    if (bench.type == at::kFloat) tensors.value = tensors.master;
    const double bytes = (12 + 4 * spec::stored_bytes(type)) * static_cast<double>(master.numel()) +
                         (bench.type == at::kFloat ? 0 : bench.tensors(1));
    const spec::OptimizerConstants constants = kind.constants({}, {.lr = 1e-4, .weight_decay = 0.1, .number = 10});
    bench.compare(
        is_bf16 ? "adam, bf16 moments" : "adam8bit", bytes,
        [&] {
          optimizer_update(kind, {{tensors, constants}});
        },
        [&] {
          at::_fused_adamw_({master}, {grad}, {m}, {v}, {}, {step}, 1e-4, 0.9, 0.999, 0.1, 1e-8, false, false);
          if (bench.type != at::kFloat) at::Tensor(value).copy_(master);
        });
  }
  bench.compare(
      "sum_of_squares", 4.0 * static_cast<double>(grad.numel()), [&] { measure({{.values = grad, .squares = true}}); },
      [&] { grad.norm().item<float>(); });
  bench.compare(
      "all_finite", 4.0 * static_cast<double>(grad.numel()), [&] { measure({{.values = grad, .not_finite = true}}); },
      [&] { at::isfinite(grad).all().item<bool>(); });
  bench.compare(
      "count_zeros", 4.0 * static_cast<double>(grad.numel()), [&] { measure({{.values = grad, .zeros = true}}); },
      [&] { at::count_nonzero(grad).item<int64_t>(); });
}

// One of Muon's iterations with a matrix of bench.rows x bench.columns, and torch.optim.Muon's.
void newton_schulz_bench(const Bench& bench) {
  const at::Tensor x = (at::randn({bench.rows, bench.columns}) / 1e3).to(bench.type);
  bench.compare(
      "newton_schulz", bench.tensors(2),
      [&] {
        newton_schulz(x, {3.4445, -4.7750, 2.0315});
      },
      [&] {
        const at::Tensor gram = at::mm(x, x.t());
        at::addmm(x, at::addmm(gram, gram, gram, -4.7750, 2.0315), x, 3.4445);
      });
}

}  // namespace

int main(int argc, char** argv) {
  const int repeats = argc > 1 ? std::atoi(argv[1]) : 20;
  std::printf("%s, %d threads\n", cpu_isa_name(cpu_isa()), at::get_num_threads());
  for (const at::ScalarType type : {at::kBFloat16, at::kFloat}) {
    for (const int64_t columns : {768, 3072}) {
      const Bench bench{repeats, 4096, columns, type};
      layer_norm_bench(bench);
      rms_norm_bench(bench);
      rotary_bench(bench, false);
      rotary_bench(bench, true);
      swiglu_bench(bench);
      gelu_bench(bench, spec::Activation::kGeluTanh, "tanh", "tanh");
      gelu_bench(bench, spec::Activation::kGeluErf, "erf", "none");
      dropout_bench(bench, 0.1);
      dropout_bench(bench, 0);
      column_sums_bench(bench);
      if (columns == 768) embedding_bench(bench);
      optimizer_bench(bench);
      newton_schulz_bench({repeats, 768, columns, type});
    }
  }
  return 0;
}
