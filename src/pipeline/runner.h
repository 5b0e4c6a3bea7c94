// Runs a schedule table on this process's stages: forwards and backwards of the micro-batches of one step, and the
// messages between the stages.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "dist/group.h"
#include "pipeline/loss_total.h"
#include "pipeline/stage.h"
#include "plan/schedule.h"

namespace espalier::pipeline {

// What the gradient of a loss term's sum is multiplied by for a micro-batch, numerator / divisor: 1 / nominal tokens,
// times the loss scale.
struct GradientFactor {
  GradientFactor(double number) : numerator(number) {}
  GradientFactor(double above, double below, bool by_count) : numerator(above), divisor(below), times_count(by_count) {}

  double numerator, divisor = 1;
  // The divisor is to be multiplied by the term's count in the micro-batch, which is on the device and stays there. The
  // factor is 0 where that is 0.
  bool times_count = false;
};
using LossFactor = std::function<GradientFactor(const LossTerm& term)>;

// Told of every micro-batch whose gradients this stage has added.
using AfterMicroBatch = std::function<void()>;

class Runner {
 public:
  // `chunks`: this process's parts of the model, in order of depth (more than one with virtual stages); part
  // chunk * stages.size() + stages.rank() of the whole. `queue`: where their ops put weight gradients. All outlive the
  // runner.
  Runner(std::vector<Stage*> chunks, const dist::Group& stages, tensor::GradQueue& queue);

  // Called by all stages, each with its own table of one schedule. Gradients are added to the parameters; nothing else
  // changes. The losses of the last part over this process's micro-batches; empty on other stages. Does not wait for
  // a device unless messages do. `after`: of schedules that neither defer weight gradients nor divide a stage.
  LossRecord train(const std::vector<plan::Action>& schedule, const std::vector<tensor::Batch>& micro_batches,
                   const LossFactor& factor, const AfterMicroBatch& after = {});
  // Forward only, dropout off. `schedule` has no backwards.
  std::vector<LossTotal> evaluate(const std::vector<plan::Action>& schedule,
                                  const std::vector<tensor::Batch>& micro_batches);

 private:
  struct Step;  // one pass over a table

  std::vector<Stage*> chunks_;
  const dist::Group& stages_;
  tensor::GradQueue& queue_;
};

}  // namespace espalier::pipeline
