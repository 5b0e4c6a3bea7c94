// What optional parts of training cost, as a share of a step without them: the largest attention logits that QK-clip
// needs, soft caps, the z-loss, --ema, the statistics of --skip-step-sigma, and Muon's directions. One process; each
// part is measured next to the same work without it, in alternating turns, the best of several.
//
//   options_bench LAYERS,HIDDEN,HEADS,VOCABULARY LENGTH STEPS <flags of training>     prints one JSON object
//
// With `--num-threads 1` among the flags all times are the thread's CPU time, which other programs lengthen little;
// else the wall clock.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "clock.h"
#include "config/run_config.h"
#include "dist/grid.h"
#include "families/gpt/config.h"
#include "kernels/attention.h"
#include "kernels/linear_cross_entropy.h"
#include "kernels/optimizer_update.h"
#include "optim/orthogonalize.h"
#include "train/job.h"
#include "train/step_statistics.h"

namespace {

using espalier::bench::milliseconds_of;

using namespace espalier;

constexpr int kTurns = 5;

struct Shape {
  int64_t layers = 0, hidden = 0, heads = 0, vocabulary = 0, length = 0;
  at::ScalarType type = at::kFloat;
};

double best(const std::function<void()>& work) {
  double least = 1e30;
  for (int turn = 0; turn < kTurns; ++turn) least = std::min(least, milliseconds_of(work));
  return least;
}

// What `with` takes more than `without`; not below 0 but for what the clock leaves open.
double extra(const std::function<void()>& with, const std::function<void()>& without) {
  double least_with = 1e30, least_without = 1e30;
  for (int turn = 0; turn < kTurns; ++turn) {
    least_without = std::min(least_without, milliseconds_of(without));
    least_with = std::min(least_with, milliseconds_of(with));
  }
  return least_with - least_without;
}

struct Cost {
  const char* what;
  double milliseconds;  // of a step
};

// Of one row of a batch in one layer.
void add_attention(const Shape& shape, double rows, std::vector<Cost>& costs) {
  const kernels::Heads heads{shape.heads, shape.heads};
  const int64_t head_size = shape.hidden / shape.heads;
  const at::Tensor qkv = at::randn({shape.length, 1, heads.columns(head_size)}).to(shape.type).requires_grad_(true);
  const at::Tensor d_result = at::randn({shape.length, 1, shape.hidden}).to(shape.type);
  const auto train = [&](const tensor::AttentionContext& context) {
    return [&] { torch::autograd::grad({kernels::attention(qkv, context, heads, 0)}, {qkv}, {d_result}); };
  };
  tensor::AttentionContext plain, maxima, capped;
  maxima.max_logits = at::zeros({shape.heads});
  capped.soft_cap = 50;
  const double times = rows * static_cast<double>(shape.layers);
  costs.push_back({"largest attention logits (--qk-clip)", times * extra(train(maxima), train(plain))});
  costs.push_back({"--attn-logit-soft-cap", times * extra(train(capped), train(plain))});
}

// Of one row of a batch.
void add_loss(const Shape& shape, double rows, std::vector<Cost>& costs) {
  const at::Tensor x = at::randn({shape.length, shape.hidden}).to(shape.type).requires_grad_(true);
  tensor::Param weight{.spec = nullptr,
                       .value = (at::randn({shape.vocabulary, shape.hidden}) * 0.02).to(shape.type),
                       .grad = at::zeros({shape.vocabulary, shape.hidden})};
  const kernels::TokenTargets targets{at::randint(shape.vocabulary, {shape.length}, at::kLong),
                                      at::ones({shape.length})};
  tensor::GradQueue queue;
  const auto train = [&](double z_loss, double soft_cap) {
    return [&, z_loss, soft_cap] {
      const kernels::TokenLosses loss =
          kernels::linear_cross_entropy(x, weight, targets, queue, {}, {.z_loss = z_loss, .soft_cap = soft_cap});
      torch::autograd::grad({z_loss > 0 ? loss.sum + loss.z_sum : loss.sum}, {x});
    };
  };
  costs.push_back({"--z-loss", rows * extra(train(1e-4, 0), train(0, 0))});
  costs.push_back({"--logit-soft-cap", rows * extra(train(0, 30), train(0, 0))});
}

void add_updates(const Shape& shape, int64_t num_parameters, std::vector<Cost>& costs) {
  const at::Tensor master = at::randn({num_parameters}), ema = master.clone();
  const spec::OptimizerKind& plain = spec::optimizer_kind(spec::OptimizerType::kPlainSgd);
  const spec::OptimizerConstants towards = plain.constants({}, {.lr = 0.001, .weight_decay = 1, .grad_scale = -1});
  costs.push_back({"--ema", best([&] { kernels::optimizer_update(plain, {{{ema, {}, master, ema}, towards}}); })});
  train::StepStatistics statistics(3, 128);
  for (int step = 0; step < 200; ++step) statistics.judge({3 + 0.01 * (step % 7), 1 + 0.1 * (step % 5)});
  costs.push_back({"--skip-step-sigma", best([&] { statistics.judge({3.01, 1.1}); })});
  const int64_t h = shape.hidden;
  const auto orthogonalize = [&](int64_t rows, int64_t columns) {
    const at::Tensor direction = at::randn({rows, columns});
    return best([&] { optim::orthogonalized(direction, shape.type, {}); });
  };
  const double layer = 4 * orthogonalize(h, h) + orthogonalize(4 * h, h) + orthogonalize(h, 4 * h);
  costs.push_back({"directions of --optimizer muon", static_cast<double>(shape.layers) * layer});
}

std::string measure(Shape shape, const std::vector<std::string>& words, int num_steps) {
  set_log_level(LogLevel::kWarning);
  config::RunConfig config;
  OptionTable table("espalier train gpt", "");
  Problems problems;
  config::read_run(families::gpt_family(), words, config, table, problems);
  problems.raise();
  std::vector<double> steps;
  int64_t num_parameters = 0;
  double rows = 0;
  {
    train::Job job(config, table, dist::single_process());
    for (const tensor::Param& param : job.params().params()) num_parameters += param.value.numel();
    shape.type = job.params().compute_type();
    rows = static_cast<double>(*config.training.global_batch_size);
    for (int step = 0; step <= num_steps; ++step) {  // the first is slower
      const double time = milliseconds_of([&] { job.trainer().step(); });
      if (step > 0) steps.push_back(time);
    }
  }
  std::sort(steps.begin(), steps.end());
  const double step = steps[steps.size() / 2];
  std::vector<Cost> costs;
  add_attention(shape, rows, costs);
  add_loss(shape, rows, costs);
  add_updates(shape, num_parameters, costs);
  std::string json = format_printf("{\"step_ms\": %.1f, \"parameters\": %ld, \"rows\": [", step, num_parameters);
  for (const Cost& cost : costs)
    json += format_printf("%s\n  {\"what\": \"%s\", \"ms\": %.3f, \"share\": %.6f}", &cost == &costs[0] ? "" : ",",
                          cost.what, cost.milliseconds, cost.milliseconds / step);
  return json + "]}";
}

}  // namespace

int main(int argc, char** argv) {
  Shape shape;
  if (argc < 5 ||
      std::sscanf(argv[1], "%ld,%ld,%ld,%ld", &shape.layers, &shape.hidden, &shape.heads, &shape.vocabulary) != 4)
    return std::fprintf(stderr, "usage: options_bench LAYERS,HIDDEN,HEADS,VOCABULARY LENGTH STEPS FLAGS...\n"), 2;
  shape.length = std::atoll(argv[2]);
  try {
    const int num_steps = std::max(1, std::atoi(argv[3]));
    std::printf("%s\n", measure(shape, {argv + 4, argv + argc}, num_steps).c_str());
  } catch (const std::exception& error) {
    return std::fprintf(stderr, "options_bench: %s\n", error.what()), 1;
  }
  return 0;
}
