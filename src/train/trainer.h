// The training step, and what a run counts. Called by all ranks alike.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "config/run_config.h"
#include "dist/grid.h"
#include "dist/reduce.h"
#include "optim/optimizer.h"
#include "pipeline/runner.h"
#include "plan/batch_ramp.h"
#include "plan/lr_schedule.h"
#include "report/step_report.h"
#include "train/loader.h"
#include "train/loss_targets.h"
#include "train/read_ahead.h"
#include "train/step_statistics.h"

namespace espalier::train {

// Where the run stands, besides parameters and optimizer.
struct RunPosition {
  int64_t step = 0;
  int64_t consumed_samples = 0, consumed_tokens = 0, consumed_valid_samples = 0;
  int64_t skipped_steps = 0, nan_steps = 0;
  bool operator==(const RunPosition&) const = default;
};

// Of one sample through the whole model (plan/flops.h).
struct SampleFlops {
  double model = 0, hardware = 0;
};
// Of a sample that is one sequence of so many tokens.
using FlopsOfLength = std::function<SampleFlops(int64_t sequence_length)>;

class Trainer {
 public:
  // What the step works on; all outlive the trainer.
  struct Parts {
    const dist::Grid& grid;
    pipeline::Runner& runner;
    dist::GradReducer& reducer;
    optim::Optimizer& optimizer;
    plan::LrSchedule& lr;
    const Loader& loader;
    tensor::LogitMaxima* logits;  // null: nobody wants them
    FlopsOfLength flops;
  };
  Trainer(const config::RunConfig& config, const Parts& parts);

  // One step: batches, forwards and backwards, update. Loss and norm are as before the update.
  report::StepReport step();
  // One step of --skip-train-iteration-range: its samples and tokens count as seen and the learning rate moves on;
  // weights and optimizer stay as they are.
  void skip_step();

  // Called on all ranks in a step whose loss is not finite, before its update: `again` makes the step's forward and
  // backward passes once more, with the same results.
  using OnNotFinite = std::function<void(const std::function<void()>& again)>;
  void on_not_finite(OnNotFinite act) { on_not_finite_ = std::move(act); }

  RunPosition& position() { return position_; }
  const RunPosition& position() const { return position_; }
  StepStatistics& statistics() { return statistics_; }
  int64_t num_micro_batches() const;  // of one replica in the next step
  const plan::BatchRamp& ramp() const { return ramp_; }

 private:
  std::vector<pipeline::LossTotal> run_batch(const std::vector<tensor::Batch>& micro_batches,
                                             const LossTargets& targets);
  void estimate_curvature(std::vector<tensor::Batch> micro_batches, const LossTargets& targets,
                          const report::StepReport& report);
  pipeline::GradientFactor loss_factor(const pipeline::LossTerm& term, int64_t num_micro_batches,
                                       const LossTargets& targets) const;
  double correction(const pipeline::LossTotal& total, const report::StepReport& report) const;
  std::vector<report::NamedLoss> named_losses(const std::vector<pipeline::LossTotal>& totals) const;
  bool are_finite(const std::vector<pipeline::LossTotal>& totals) const;
  std::string objection(const std::vector<pipeline::LossTotal>& totals, double grad_norm);
  void count(const report::StepReport& report);
  void read_ahead();
  int64_t tokens_of_sample() const;  // in the next step
  data::LengthStage length() const;  // of its sequences
  SampleFlops flops_of_sample();

  const config::RunConfig& config_;
  Parts parts_;
  plan::BatchRamp ramp_;
  RunPosition position_;
  StepStatistics statistics_;
  OnNotFinite on_not_finite_;
  std::pair<int64_t, SampleFlops> known_flops_{0, {}};  // of a length of sequences
  ReadAhead ahead_;
};

// The loss of each term as the run reports it: by token, or Megatron's mean of micro-batch means, of those that have
// targets. NaN where nothing has.
double mean_loss(const pipeline::LossTotal& total, config::LossAverage average);

}  // namespace espalier::train
