#include "train/job_state.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/headeronly/version.h>

#include <fstream>

#include "base/format.h"
#include "spec/grid.h"
#include "tensor/rng.h"

namespace espalier::train {
namespace {

std::string cpu_type() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return strip(line.substr(line.find(':') + 1));
  return "unknown";
}

std::vector<ckpt::TensorRequest> all_requests(const JobState& job) {
  std::vector<ckpt::TensorRequest> requests;
  for (tensor::Param& param : job.params.params()) requests.push_back({param.spec->name, param.value});
  job.optimizer.visit_state([&](const optim::StatePiece& piece) {
    requests.push_back({piece.param->spec->name + "." + piece.kind, piece.values});
  });
  return requests;
}

}  // namespace

std::vector<ckpt::TensorToSave> tensors_to_save(const JobState& job) {
  const int64_t num_layers = job.params.specs().back().depth - 1;
  std::vector<ckpt::TensorToSave> tensors;
  const auto group = [&](const tensor::Param& param) { return spec::file_group(param.spec->depth, num_layers); };
  for (tensor::Param& param : job.params.params())
    tensors.push_back({param.spec->name, store::weights_file(group(param)), param.value});
  job.optimizer.visit_state([&](const optim::StatePiece& piece) {
    tensors.push_back(
        {piece.param->spec->name + "." + piece.kind, store::optimizer_file(group(*piece.param)), piece.values});
  });
  return tensors;
}

store::TrainingState training_state(const JobState& job, const plan::RunConfig& config) {
  store::TrainingState state;
  state.step = job.position.step;
  state.consumed_train_samples = job.position.consumed_samples;
  state.consumed_train_tokens = job.position.consumed_tokens;
  state.consumed_valid_samples = job.position.consumed_valid_samples;
  state.skipped_steps = job.position.skipped_steps;
  state.nan_steps = job.position.nan_steps;
  const optim::LrState lr = job.lr.state();
  state.scheduler_samples = lr.num_samples;
  state.scheduler_tokens = lr.num_tokens;
  state.scheduler_warmup_tokens = lr.warmup_tokens;
  state.optimizer_steps = job.optimizer.num_steps();
  if (optim::LossScale* scaler = job.optimizer.loss_scaler()) {
    state.loss_scale = scaler->state().scale;
    state.loss_scale_growth_tracker = scaler->state().growth_tracker;
    state.loss_scale_hysteresis_tracker = scaler->state().hysteresis_tracker;
  }
  state.random_scheme = tensor::kRandomScheme;
  state.layout = spec::to_string(config.grid);
  state.num_threads = at::get_num_threads();
  state.cpu_type = cpu_type();
  state.libtorch_version = concat(TORCH_VERSION_MAJOR, ".", TORCH_VERSION_MINOR, ".", TORCH_VERSION_PATCH);
  return state;
}

void restore_tensors(ckpt::LoadedCheckpoint& checkpoint, const JobState& job, Restore what) {
  if (what == Restore::kAll) {
    checkpoint.load(all_requests(job), ckpt::LoadedCheckpoint::Part::kAll);
    return;
  }
  // The compute type may differ here: the master weights are the truth, where there are any.
  for (tensor::Param& param : job.params.params()) {
    const std::string master = param.spec->name + ".master";
    const at::Tensor fp32 = checkpoint.read(checkpoint.has(master) ? master : param.spec->name).to(at::kFloat);
    job.optimizer.set_master(param, fp32);
    param.value.copy_(fp32);
  }
}

void restore_numbers(const store::TrainingState& state, const JobState& job) {
  job.position.step = state.step;
  job.position.consumed_samples = state.consumed_train_samples;
  job.position.consumed_tokens = state.consumed_train_tokens;
  job.position.consumed_valid_samples = state.consumed_valid_samples;
  job.position.skipped_steps = state.skipped_steps;
  job.position.nan_steps = state.nan_steps;
  job.lr.restore({.num_samples = state.scheduler_samples,
                  .num_tokens = state.scheduler_tokens,
                  .warmup_tokens = state.scheduler_warmup_tokens});
  job.optimizer.set_num_steps(state.optimizer_steps);
  if (optim::LossScale* scaler = job.optimizer.loss_scaler())
    scaler->restore({state.loss_scale, state.loss_scale_growth_tracker, state.loss_scale_hysteresis_tracker});
}

}  // namespace espalier::train
