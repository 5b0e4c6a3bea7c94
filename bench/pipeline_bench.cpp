// The bubble of each pipeline schedule as the runner has it, against its closed form.
//
//   pipeline_bench [num_micro_batches] [milliseconds]
//
// Stages are processes that sleep instead of computing, so that there can be more of them than cores: forward, input
// gradient and weight gradient take the same time. Everything else is real: schedule tables, autograd, messages.
// Prints one line per schedule: the share of the step in which a stage did not sleep (a sleep lasts a little longer
// than it was asked for, which counts as work), the mean of all stages; its closed form; and their ratio.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "dist/local_ranks.h"
#include "pipeline/runner.h"

namespace espalier {
namespace {

using Clock = std::chrono::steady_clock;

double num_milliseconds = 20;
double worked_seconds = 0;  // by this stage in this step

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

void work(double share) {
  const Clock::time_point start = Clock::now();
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(share * num_milliseconds));
  worked_seconds += seconds_since(start);
}

struct SleepingLayer : torch::autograd::Function<SleepingLayer> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, double share,
                            tensor::Param* param, tensor::GradQueue* queue) {
    context->saved_data["share"] = share;
    context->saved_data["param"] = static_cast<int64_t>(reinterpret_cast<intptr_t>(param));
    context->saved_data["queue"] = static_cast<int64_t>(reinterpret_cast<intptr_t>(queue));
    work(share);
    return x + 1;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const double share = context->saved_data["share"].toDouble();
    auto* param = reinterpret_cast<tensor::Param*>(static_cast<intptr_t>(context->saved_data["param"].toInt()));
    auto* queue = reinterpret_cast<tensor::GradQueue*>(static_cast<intptr_t>(context->saved_data["queue"].toInt()));
    work(share);
    queue->push(*param, [share] { work(share); });
    return {grads[0], {}, {}, {}};
  }
};

class SleepingStage : public pipeline::Stage {
 public:
  SleepingStage(int64_t part, int64_t num_parts, double share) : part_(part), num_parts_(num_parts), share_(share) {}

  pipeline::StageOutput forward(const pipeline::StageInput& input) override {
    const at::Tensor x = part_ == 0 ? at::zeros({8}).requires_grad_(true) : input.tensors.at(0).tensor;
    const at::Tensor y = SleepingLayer::apply(x, share_, &param_, &queue_);
    if (part_ + 1 < num_parts_) return {{{"hidden", y}}, {}};
    pipeline::LossTerm term{
        .name = "loss", .sum = y.sum(), .count = at::ones({}), .weight = 1, .row_sums = {}, .row_counts = {}};
    term.row_sums = term.row_counts = at::ones({1});
    return {{}, {term}};
  }
  std::vector<pipeline::TensorShape> input_shapes(const tensor::Batch&) const override { return shapes(part_ > 0); }
  std::vector<pipeline::TensorShape> output_shapes(const tensor::Batch&) const override {
    return shapes(part_ + 1 < num_parts_);
  }
  void visit(tensor::ParamVisitor&) override {}

  static inline tensor::GradQueue queue_;

 private:
  static std::vector<pipeline::TensorShape> shapes(bool any) {
    return any ? std::vector<pipeline::TensorShape>{{"hidden", {8}, at::kFloat}} : std::vector<pipeline::TensorShape>();
  }
  tensor::Param param_;
  int64_t part_, num_parts_;
  double share_;
};

// Share of a step in which a stage did not work; of the second of two, when everything is ready.
double idle_share(plan::ScheduleKind kind, int64_t num_stages, int64_t num_micro_batches, int64_t num_chunks) {
  const auto run = [&](const dist::Grid& grid) {
    std::vector<std::unique_ptr<SleepingStage>> stages;
    std::vector<pipeline::Stage*> chunks;
    for (int64_t chunk = 0; chunk < num_chunks; ++chunk) {
      stages.push_back(std::make_unique<SleepingStage>(chunk * num_stages + grid.position.pipeline,
                                                       num_chunks * num_stages, 1.0 / static_cast<double>(num_chunks)));
      chunks.push_back(stages.back().get());
    }
    pipeline::Runner runner(chunks, grid.pipeline, SleepingStage::queue_);
    tensor::Batch batch;
    batch.ids = at::zeros({1, 8}, at::kLong);  // their device is the stage's
    const std::vector<tensor::Batch> batches(static_cast<size_t>(num_micro_batches), batch);
    const auto table = plan::make_schedule(kind, num_stages, grid.position.pipeline, num_micro_batches, num_chunks);
    double seconds = 0;
    for (int step = 0; step < 2; ++step) {
      grid.world.barrier();
      worked_seconds = 0;
      const Clock::time_point start = Clock::now();
      runner.train(table, batches, [](const pipeline::LossTerm&) { return 1.0; });
      grid.world.barrier();
      seconds = seconds_since(start);
    }
    return std::to_string(1 - grid.world.sum(worked_seconds) / static_cast<double>(num_stages) / seconds);
  };
  return std::stod(dist::run_ranks({.pipeline = num_stages}, run).at(0));
}

// Idle share of a stage: (p - 1) slots of a forward and a backward (three works) over all; a chunk's are shorter, and
// ZB-H1 fills two of the three works of each (Qi et al. 2023: (p - 1)(F + B - W)).
double closed_form(plan::ScheduleKind kind, double p, double m, double v) {
  switch (kind) {
    case plan::ScheduleKind::k1F1B: return (p - 1) / (m + p - 1);
    case plan::ScheduleKind::kInterleaved: return (p - 1) / (v * m + p - 1);
    case plan::ScheduleKind::kZeroBubble: return (p - 1) / (3 * m + p - 1);
  }
  return 0;
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) {
  using namespace espalier;
  const int64_t m = argc > 1 ? std::atoll(argv[1]) : 16;
  if (argc > 2) num_milliseconds = std::atof(argv[2]);
  std::printf("%lld micro-batches, %.0f ms each of forward, input gradient, weight gradient\n%-18s%8s%8s%10s%10s%8s\n",
              static_cast<long long>(m), num_milliseconds, "schedule", "stages", "chunks", "bubble", "formula",
              "ratio");
  struct Case {
    plan::ScheduleKind kind;
    int64_t stages, chunks;
  };
  for (const Case& c : {Case{plan::ScheduleKind::k1F1B, 2, 1}, Case{plan::ScheduleKind::k1F1B, 4, 1},
                        Case{plan::ScheduleKind::k1F1B, 8, 1}, Case{plan::ScheduleKind::kInterleaved, 2, 2},
                        Case{plan::ScheduleKind::kInterleaved, 4, 2}, Case{plan::ScheduleKind::kInterleaved, 4, 4},
                        Case{plan::ScheduleKind::kZeroBubble, 2, 1}, Case{plan::ScheduleKind::kZeroBubble, 4, 1},
                        Case{plan::ScheduleKind::kZeroBubble, 8, 1}}) {
    const double bubble = idle_share(c.kind, c.stages, m, c.chunks);
    const double formula =
        closed_form(c.kind, static_cast<double>(c.stages), static_cast<double>(m), static_cast<double>(c.chunks));
    std::printf("%-18s%8lld%8lld%9.2f%%%9.2f%%%8.3f\n", plan::to_string(c.kind).c_str(),
                static_cast<long long>(c.stages), static_cast<long long>(c.chunks), 100 * bubble, 100 * formula,
                bubble / formula);
    std::fflush(stdout);
  }
}
