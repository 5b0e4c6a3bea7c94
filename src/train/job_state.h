// Between a running job and a checkpoint: which tensors and numbers make up its state.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ckpt/loader.h"
#include "ckpt/writer.h"
#include "config/run_config.h"
#include "optim/optimizer.h"
#include "plan/lr_schedule.h"
#include "train/trainer.h"

namespace espalier::train {

struct JobState {
  const dist::Grid& grid;
  const spec::ModelSpec& model;
  tensor::ParamSet& params;
  dist::GradReducer& reducer;
  optim::Optimizer& optimizer;
  plan::LrSchedule& lr;
  RunPosition& position;
  StepStatistics& statistics;
};

// Of the kernels and of libtorch, with the variables that lower it: "amx; libtorch AVX512".
std::string instruction_set();

// Weights in the compute type, master weights and the optimizer's state, by group of layers. The copy that a
// pipeline stage holds of another's parameter is left out of checkpoints, where each is once.
enum class TiedCopies { kLeaveOut, kInclude };
std::vector<ckpt::TensorToSave> tensors_to_save(const JobState& job, TiedCopies copies = TiedCopies::kLeaveOut);

// The numbers of the state: counters, schedule and loss scale; the same on every rank.
store::TrainingState run_numbers(const JobState& job);
// Layout, threads and the like are filled in as well.
store::TrainingState training_state(const JobState& job, const config::RunConfig& config);

// Weights only (--finetune, --no-load-optim), or everything; kAllOfOtherType where the checkpoint was saved in another
// compute type. But for kAll the weights are rounded from the master weights stored, or, without them, from the weights
// themselves.
// kWeightsThere: weights that the checkpoint has; the others keep what they hold. kEma: the moving average as weights.
// Moments of another type are rounded to the nearest. A moving average that the run keeps and the checkpoint lacks
// begins as the weights.
enum class Restore { kWeights, kWeightsThere, kEma, kAll, kAllOfOtherType };
// What a parameter is called in the checkpoint, where it is that of another model (kWeightsThere).
using NameThere = std::function<std::string(const std::string& parameter)>;
void restore_tensors(ckpt::LoadedCheckpoint& checkpoint, const JobState& job, Restore what,
                     const NameThere& name_there = {});
// The same from elsewhere: `load` fills the requests, which are for tensors_to_save(job, TiedCopies::kInclude) in
// order.
using LoadTensors = std::function<void(const std::vector<ckpt::TensorRequest>& requests)>;
void restore_tensors(const JobState& job, const LoadTensors& load);
// Where the schedule was.
plan::LrState lr_state(const store::TrainingState& state);
// Counters, schedule and loss scale.
void restore_numbers(const store::TrainingState& state, const JobState& job);

}  // namespace espalier::train
