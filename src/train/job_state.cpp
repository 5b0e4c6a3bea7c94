#include "train/job_state.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "base/cpu_isa.h"
#include "base/format.h"
#include "plan/layout.h"
#include "spec/shard.h"
#include "spec/state_storage.h"
#include "tensor/rng.h"

namespace espalier::train {
namespace {

const std::string& cpu_type() {
  static const std::string type = []() -> std::string {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);)
      if (line.starts_with("model name")) return strip(line.substr(line.find(':') + 1));
    return "unknown";
  }();
  return type;
}

// The transport, without the reason.
std::string transport_of(const dist::Grid& grid) {
  if (grid.world.size() == 1) return "none";
  return grid.device.is_cpu() ? grid.transport.substr(0, grid.transport.find(" (")) : "NCCL";
}

// What this rank owns of a tensor of the checkpoint: pieces of it, in order.
struct OwnedTensor {
  std::string name;
  const tensor::Param* param = nullptr;
  std::vector<at::Tensor> values;
  std::vector<plan::ZeroPiece> pieces;  // of the parameter; they lie together in joined()
  // Of a state: how it is stored.
  spec::StateType type = spec::StateType::kFp32;
  spec::StateTensor::Moment moment = spec::StateTensor::Moment::kNone;
};

OwnedTensor& add_piece(std::vector<OwnedTensor>& tensors, const std::string& name, const tensor::Param* param,
                       const at::Tensor& values, const spec::IndexRange& range) {
  const auto same = [&](const OwnedTensor& tensor) { return tensor.param == param && tensor.name == name; };
  auto found = std::find_if(tensors.begin(), tensors.end(), same);
  if (found == tensors.end())
    found = tensors.insert(tensors.end(), {.name = name, .param = param, .values = {}, .pieces = {}});
  const int64_t begin = found->pieces.empty() ? 0 : found->pieces.back().shard_begin + found->pieces.back().count;
  found->values.push_back(values);
  found->pieces.push_back({.param_begin = range.begin, .shard_begin = begin, .count = range.count()});
  return *found;
}

// Weights and optimizer state; a parameter's pieces are one tensor. To be filled the weights are the pieces' values.
enum class Purpose { kSave, kFill };
std::vector<OwnedTensor> owned_tensors(const JobState& job, Purpose purpose) {
  std::vector<OwnedTensor> weights, state;
  const std::vector<dist::OwnedPiece>& pieces = job.reducer.pieces();
  for (size_t at = 0; at < pieces.size(); ++at) {
    const dist::OwnedPiece& piece = pieces[at];
    const at::Tensor values = purpose == Purpose::kSave ? job.optimizer.value_to_save(at) : piece.value;
    add_piece(weights, piece.param->spec->name, piece.param, values, {piece.begin, piece.end});
  }
  job.optimizer.visit_state([&](const optim::StatePiece& piece) {
    OwnedTensor& owned = add_piece(state, piece.param->spec->name + "." + piece.kind, piece.param, piece.values,
                                   {piece.begin, piece.end});
    owned.type = piece.type, owned.moment = piece.moment;
  });
  weights.insert(weights.end(), state.begin(), state.end());
  return weights;
}

// As it is kept, or as `type` where a checkpoint holds that.
ckpt::TensorPart part_of(const OwnedTensor& tensor, const spec::TensorShard& shard, spec::StateType type) {
  ckpt::TensorPart part = ckpt::owned_part(ckpt::held_part(*tensor.param->spec, shard), tensor.pieces);
  return {spec::stored_shape(type, part.global_shape), spec::stored_extents(type, part.extents)};
}
ckpt::TensorPart part_of(const OwnedTensor& tensor, const spec::TensorShard& shard) {
  return part_of(tensor, shard, tensor.type);
}

// The pieces one after another; a single one is itself.
at::Tensor joined(const OwnedTensor& tensor) {
  if (tensor.values.size() == 1) return tensor.values[0];
  std::vector<at::Tensor> flat;
  for (const at::Tensor& values : tensor.values) flat.push_back(values.reshape({-1}));
  return at::cat(flat);
}

// In memory of this machine, to be filled: itself on the CPU.
at::Tensor host_destination(const at::Tensor& values) {
  return values.is_cpu() ? values : at::empty(values.sizes(), at::TensorOptions().dtype(values.scalar_type()));
}

int64_t num_elements(const OwnedTensor& tensor) {
  return tensor.pieces.back().shard_begin + tensor.pieces.back().count;
}

// The type in which a checkpoint holds a moment; the tensor's own where it is no moment.
spec::StateType type_in(const ckpt::LoadedCheckpoint& checkpoint, const OwnedTensor& tensor) {
  const store::StoredTensor* stored = checkpoint.manifest().find(tensor.name);
  if (stored == nullptr || tensor.moment == spec::StateTensor::Moment::kNone) return tensor.type;
  switch (stored->dtype) {
    case store::DType::kFloat32: return spec::StateType::kFp32;
    case store::DType::kBFloat16: return spec::StateType::kBf16;
    case store::DType::kUInt8: return spec::StateType::kFp8;
    default: return tensor.type;  // which the loader refuses
  }
}

// Moments of another type, to the nearest of the tensor's own.
at::Tensor converted(const OwnedTensor& tensor, const at::Tensor& stored, spec::StateType from) {
  const int64_t count = num_elements(tensor);
  const at::Tensor values = at::empty({count}, at::kFloat);
  spec::widen_state(from, tensor.moment, stored.const_data_ptr(), count, values.mutable_data_ptr<float>());
  const at::Tensor own = at::empty({spec::stored_count(tensor.type, count)}, optim::scalar_type_of(tensor.type));
  spec::narrow_state(tensor.type, tensor.moment, values.const_data_ptr<float>(), count, own.mutable_data_ptr());
  return own;
}

// What is loaded of a tensor: into itself where it is on this machine, in one piece and of the checkpoint's type.
struct Loading {
  OwnedTensor tensor;
  spec::StateType stored = spec::StateType::kFp32;
  at::Tensor destination;

  bool fills_itself() const { return stored == tensor.type && tensor.values.size() == 1 && tensor.values[0].is_cpu(); }
  void finish() const {
    if (fills_itself()) return;
    at::Tensor flat = destination.reshape({-1});
    if (stored != tensor.type) flat = converted(tensor, flat, stored);
    int64_t begin = 0;
    for (const at::Tensor& values : tensor.values) {
      values.copy_(flat.narrow(0, begin, values.numel()).view(values.sizes()));
      begin += values.numel();
    }
  }
};

Loading loading_of(OwnedTensor tensor, spec::StateType stored) {
  Loading loading{.tensor = std::move(tensor), .stored = stored, .destination = {}};
  loading.destination =
      stored == loading.tensor.type
          ? host_destination(joined(loading.tensor))
          : at::empty({spec::stored_count(stored, num_elements(loading.tensor))}, optim::scalar_type_of(stored));
  return loading;
}

// `load` fills them, in memory of this machine; from there they go where they belong.
void fill(const std::vector<Loading>& loadings, const spec::TensorShard& shard, const LoadTensors& load) {
  std::vector<ckpt::TensorRequest> requests;
  for (const Loading& loading : loadings)
    requests.push_back({loading.tensor.name, loading.destination, part_of(loading.tensor, shard, loading.stored)});
  load(requests);
  for (const Loading& loading : loadings) loading.finish();
}

bool is_state(const OwnedTensor& tensor, const spec::OptimizerKind& kind) {
  const std::string& parameter = tensor.param->spec->name;
  return tensor.name.size() > parameter.size() && kind.has_state(tensor.name.substr(parameter.size() + 1));
}

bool is_ema(const OwnedTensor& tensor) { return tensor.name == store::ema_of(tensor.param->spec->name); }

// What this rank owns of everything, or of the optimizer's state but the masters.
enum class Owned { kAll, kState };
void restore_owned(ckpt::LoadedCheckpoint& checkpoint, const JobState& job, Owned what) {
  std::vector<OwnedTensor> tensors = owned_tensors(job, Purpose::kFill);
  if (what == Owned::kState)
    std::erase_if(tensors, [&](const OwnedTensor& tensor) { return !is_state(tensor, job.optimizer.kind()); });
  const bool keeps_ema = job.optimizer.kind().keeps_ema,
             has_ema = checkpoint.has(store::ema_of(job.model.params[0].name));
  if (keeps_ema && !has_ema) std::erase_if(tensors, is_ema);
  using Part = ckpt::LoadedCheckpoint::Part;
  const Part part = what == Owned::kState || (has_ema && !keeps_ema) ? Part::kSome : Part::kAll;
  std::vector<Loading> loadings;
  for (OwnedTensor& tensor : tensors) {
    const spec::StateType stored = type_in(checkpoint, tensor);
    loadings.push_back(loading_of(std::move(tensor), stored));
  }
  checkpoint.use_cache(
      store::PageCache::kAsItIs);  // every block is read once, by one rank; data and programs stay in it
  fill(loadings, job.params.shard(),
       [&](const auto& requests) { checkpoint.load_together(requests, part, job.grid.world); });
  if (keeps_ema && !has_ema) job.optimizer.begin_ema();
}

// To all ranks. The weights of a mean's run are not those at which gradients are taken: these follow from the state.
void publish_restored(const JobState& job) {
  if (job.optimizer.kind().averages)
    job.optimizer.publish();
  else
    job.reducer.gather_values();
}

}  // namespace

std::string instruction_set() {
  std::string text = concat(cpu_isa_name(cpu_isa()), "; libtorch ", at::get_cpu_capability());
  for (const char* name : {"ATEN_CPU_CAPABILITY", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA"})
    if (const char* value = std::getenv(name)) text += concat("; ", name, "=", value);
  return text;
}

std::vector<ckpt::TensorToSave> tensors_to_save(const JobState& job, TiedCopies copies) {
  std::vector<ckpt::TensorToSave> tensors;
  for (const OwnedTensor& tensor : owned_tensors(job, Purpose::kSave)) {
    const spec::ParamSpec& spec = *tensor.param->spec;
    if (spec.is_copy && copies == TiedCopies::kLeaveOut) continue;
    const std::string& group = job.model.depths[static_cast<size_t>(spec.depth)].name;
    const std::string file = tensor.name == spec.name ? store::weights_file(group) : store::optimizer_file(group);
    tensors.push_back({tensor.name, file, joined(tensor), part_of(tensor, job.params.shard())});
  }
  return tensors;
}

store::TrainingState run_numbers(const JobState& job) {
  store::TrainingState state;
  state.step = job.position.step;
  state.consumed_train_samples = job.position.consumed_samples;
  state.consumed_train_tokens = job.position.consumed_tokens;
  state.consumed_valid_samples = job.position.consumed_valid_samples;
  state.skipped_steps = job.position.skipped_steps;
  state.nan_steps = job.position.nan_steps;
  state.step_statistics = job.statistics.state();
  const plan::LrState lr = job.lr.state();
  state.scheduler_samples = lr.num_samples;
  state.scheduler_tokens = lr.num_tokens;
  state.scheduler_warmup_tokens = lr.warmup_tokens;
  state.optimizer_steps = job.optimizer.num_steps();
  state.mean_largest_lr = job.optimizer.mean_state().largest_lr;
  state.mean_weight = job.optimizer.mean_state().weight;
  if (optim::LossScale* scaler = job.optimizer.loss_scaler()) {
    state.loss_scale = scaler->state().scale;
    state.loss_scale_growth_tracker = scaler->state().growth_tracker;
    state.loss_scale_hysteresis_tracker = scaler->state().hysteresis_tracker;
  }
  return state;
}

store::TrainingState training_state(const JobState& job, const config::RunConfig& config) {
  store::TrainingState state = run_numbers(job);
  state.random_scheme = tensor::kRandomScheme;
  const config::ParallelConfig& parallel = config.parallel;
  state.layout = plan::to_string(plan::Layout{.grid = config.grid,
                                              .num_chunks = parallel.num_chunks,
                                              .zero_stage = parallel.zero_stage,
                                              .sequence_parallel = parallel.sequence_parallel,
                                              .zero_bubble = parallel.enable_zbh1_pipeline});
  state.num_threads = at::get_num_threads();
  state.cpu_type = cpu_type();
  state.libtorch_version = concat(TORCH_VERSION_MAJOR, ".", TORCH_VERSION_MINOR, ".", TORCH_VERSION_PATCH);
  state.transport = transport_of(job.grid);
  state.instruction_set = instruction_set();
  return state;
}

void restore_tensors(const JobState& job, const LoadTensors& load) {
  std::vector<Loading> loadings;
  std::vector<OwnedTensor> tensors = owned_tensors(job, Purpose::kFill);
  for (OwnedTensor& tensor : tensors) {
    const spec::StateType stored = tensor.type;
    loadings.push_back(loading_of(std::move(tensor), stored));
  }
  fill(loadings, job.params.shard(), load);
  publish_restored(job);
}

void restore_tensors(ckpt::LoadedCheckpoint& checkpoint, const JobState& job, Restore what,
                     const NameThere& name_there) {
  if (what == Restore::kAll) {
    restore_owned(checkpoint, job, Owned::kAll);
    publish_restored(job);
    return;
  }
  // The compute type may differ here: the master weights are the truth, where there are any.
  for (tensor::Param& param : job.params.params()) {
    const std::string of_weights = name_there ? name_there(param.spec->name) : param.spec->name;
    const std::string better = what == Restore::kEma ? store::ema_of(of_weights) : concat(of_weights, ".master");
    const std::string& name = checkpoint.has(better) ? better : of_weights;
    if (what == Restore::kWeightsThere && !checkpoint.has(name)) continue;
    const at::Tensor fp32 = checkpoint.read(name, spec::local_extents(*param.spec, job.params.shard()))
                                .to(at::kFloat)
                                .view(spec::local_shape(*param.spec, job.params.shard()));
    job.optimizer.set_master(param, fp32);
  }
  if (what == Restore::kAllOfOtherType) restore_owned(checkpoint, job, Owned::kState);
  publish_restored(job);
}

plan::LrState lr_state(const store::TrainingState& state) {
  return {.num_samples = state.scheduler_samples,
          .num_tokens = state.scheduler_tokens,
          .warmup_tokens = state.scheduler_warmup_tokens};
}

void restore_numbers(const store::TrainingState& state, const JobState& job) {
  job.position.step = state.step;
  job.position.consumed_samples = state.consumed_train_samples;
  job.position.consumed_tokens = state.consumed_train_tokens;
  job.position.consumed_valid_samples = state.consumed_valid_samples;
  job.position.skipped_steps = state.skipped_steps;
  job.position.nan_steps = state.nan_steps;
  job.statistics.restore(state.step_statistics);
  job.lr.restore(lr_state(state));
  job.optimizer.set_num_steps(state.optimizer_steps);
  job.optimizer.set_mean_state({.largest_lr = state.mean_largest_lr, .weight = state.mean_weight});
  if (optim::LossScale* scaler = job.optimizer.loss_scaler())
    scaler->restore({state.loss_scale, state.loss_scale_growth_tracker, state.loss_scale_hysteresis_tracker});
}

}  // namespace espalier::train
