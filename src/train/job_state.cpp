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

// What this rank owns of a parameter, and of its optimizer state.
ckpt::TensorPart part_of(const dist::OwnedPiece& piece, const spec::TensorShard& shard) {
  const spec::ParamSpec& spec = *piece.param->spec;
  return {spec.shape, spec::clip_to_local(spec::local_extents(spec, shard), piece.begin, piece.end)};
}

ckpt::TensorPart part_of(const optim::StatePiece& piece, const spec::TensorShard& shard) {
  const spec::ParamSpec& spec = *piece.param->spec;
  return {spec.shape, spec::clip_to_local(spec::local_extents(spec, shard), piece.begin, piece.end)};
}

std::vector<ckpt::TensorRequest> all_requests(const JobState& job) {
  std::vector<ckpt::TensorRequest> requests;
  for (const dist::OwnedPiece& piece : job.reducer.pieces())
    requests.push_back({piece.param->spec->name, piece.value, part_of(piece, job.params.shard())});
  job.optimizer.visit_state([&](const optim::StatePiece& piece) {
    requests.push_back(
        {piece.param->spec->name + "." + piece.kind, piece.values, part_of(piece, job.params.shard())});
  });
  return requests;
}

// The tensors of a checkpoint of this precision, whichever rank holds them.
std::vector<std::string> all_names(const JobState& job) {
  std::vector<std::string> names;
  for (const spec::ParamSpec& spec : job.specs) {
    names.push_back(spec.name);
    if (job.params.compute_type() != at::kFloat) names.push_back(spec.name + ".master");
    for (const char* kind : {".exp_avg", ".exp_avg_sq"}) names.push_back(spec.name + kind);
  }
  return names;
}

}  // namespace

std::vector<ckpt::TensorToSave> tensors_to_save(const JobState& job) {
  const int64_t num_layers = job.specs.back().depth - 1;
  const auto group = [&](const tensor::Param& param) { return spec::file_group(param.spec->depth, num_layers); };
  std::vector<ckpt::TensorToSave> tensors;
  for (const dist::OwnedPiece& piece : job.reducer.pieces())
    if (!piece.param->spec->is_copy)
      tensors.push_back({piece.param->spec->name, store::weights_file(group(*piece.param)), piece.value,
                         part_of(piece, job.params.shard())});
  job.optimizer.visit_state([&](const optim::StatePiece& piece) {
    if (!piece.param->spec->is_copy)
      tensors.push_back({piece.param->spec->name + "." + piece.kind, store::optimizer_file(group(*piece.param)),
                         piece.values, part_of(piece, job.params.shard())});
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
    checkpoint.load(all_requests(job), ckpt::LoadedCheckpoint::Part::kAll, all_names(job));
    job.reducer.gather_values();
    return;
  }
  // The compute type may differ here: the master weights are the truth, where there are any.
  for (tensor::Param& param : job.params.params()) {
    const std::string master = param.spec->name + ".master";
    const std::string& name = checkpoint.has(master) ? master : param.spec->name;
    const at::Tensor fp32 = checkpoint.read(name, spec::local_extents(*param.spec, job.params.shard()))
                                .to(at::kFloat)
                                .view(spec::local_shape(*param.spec, job.params.shard()));
    job.optimizer.set_master(param, fp32);
  }
  job.reducer.gather_values();
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
