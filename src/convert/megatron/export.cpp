#include "convert/megatron/export.h"

#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "convert/megatron/internal/exporter.h"
#include "convert/megatron/internal/read.h"
#include "convert/model_config.h"
#include "convert/partial_folder.h"
#include "families/registry.h"
#include "plan/lr_schedule.h"
#include "spec/optimizer.h"
#include "spec/shard.h"
#include "store/torch_file_writer.h"

namespace espalier::convert {
namespace {

namespace fs = std::filesystem;
using store::TorchItems;
using store::TorchPairs;
using store::TorchValue;

constexpr double kCheckpointVersion = 3.0;

}  // namespace

MegatronExporter::MegatronExporter(const MegatronExport& request)
    : request_(request),
      entry_(*store::find_checkpoint(request.load, request.step, /*save=*/"")),
      tensors_(entry_.folder),
      table_("espalier train", "") {
  Problems problems;
  families::read_saved_run(manifest(), entry_.folder.string(), config_, table_, problems);
  problems.raise(ExitCode::kBadData);
  codec_ = &formats_of(*config_.family).megatron;
  shape_ = codec_->shape(config_);
  model_ = spec_of(model_of(config_));
  order_ = {
      .version = kCheckpointVersion, .head_size = shape_.head_size, .activated_half_last = shape_.activated_half_last};
  has_optimizer_ = request.with_optimizer && tensors_.has(word_embedding().name + suffix_of(TensorKind::kExpAvg));
  check_layout();
}

MegatronExportReport MegatronExporter::run() {
  const bool deepspeed = request_.format == MegatronFormat::kDeepSpeed;
  const int64_t step = manifest().state.step;
  const std::string name =
      deepspeed ? concat("global_step", step) : format_printf("iter_%07lld", static_cast<long long>(step));
  PartialFolder folder(request_.output / name);
  report_.folder = folder.path();
  progress_ = std::make_unique<Progress>("export", manifest().tensor_bytes(), Progress::Unit::kBytes);
  if (deepspeed)
    write_deepspeed();
  else
    write_megatron();
  progress_->finish();
  folder.commit();
  report_.folder = request_.output / name;
  write_file_atomically(request_.output / (deepspeed ? "latest" : "latest_checkpointed_iteration.txt"),
                        deepspeed ? name : std::to_string(step));
  report_.step = step;
  report_.has_optimizer = has_optimizer_;
  return report_;
}

const spec::ParamSpec& MegatronExporter::word_embedding() const {
  for (const spec::ParamSpec& spec : model_.params)
    if (is_word_embedding(spec.name)) return spec;
  ESPALIER_CHECK(false, "a model without word embeddings");
  return model_.params.front();
}

void MegatronExporter::check_layout() const {
  Problems problems;
  const std::vector<std::string> obstacles = codec_->obstacles(config_);
  for (const std::string& obstacle : obstacles) problems.add(obstacle);
  if (request_.format == MegatronFormat::kDeepSpeed && !codec_->has_pipeline_module)
    problems.add("upstream's model for DeepSpeed's pipeline engine is a decoder, not a ", config_.family->display,
                 ": use --format megatron");
  if (codec_->on_one_rank && (request_.tensor > 1 || request_.pipeline > 1))
    problems.add("--tensor-model-parallel-size ", request_.tensor, ", --pipeline-model-parallel-size ",
                 request_.pipeline, ": upstream runs ", config_.family->kin,
                 " on one tensor rank and one stage: use 1");
  if (obstacles.empty())
    for (const std::string& option : unsaid_options(config_, table_))
      problems.add(option, ": Megatron's arguments cannot express it, and a model without it would be different: it ",
                   "cannot be exported");
  const auto divides = [&](const char* flag, int64_t size, const char* what, int64_t count) {
    if (count % size != 0)
      problems.add(flag, " ", size, " does not divide ", what, " = ", format_count(count),
                   ": the other programs split it evenly");
  };
  divides("--tensor-model-parallel-size", request_.tensor, "the heads of keys and values", shape_.num_groups);
  divides("--tensor-model-parallel-size", request_.tensor, "ffn_hidden_size", shape_.ffn_hidden_size);
  divides("--tensor-model-parallel-size", request_.tensor, "the padded vocabulary", model_.vocabulary.padded_size);
  divides("--pipeline-model-parallel-size", request_.pipeline, "num_layers", model_.num_layers());
  if (request_.format == MegatronFormat::kDeepSpeed && config_.training.precision == plan::Precision::kFp16 &&
      has_optimizer_)
    problems.add(
        "DeepSpeed keeps the loss scaler of fp16 as an object of its own class, which this program does not "
        "write: use --format megatron, or --no-save-optim for the weights alone");
  if (const spec::OptimizerKind& kind = spec::optimizer_kind(config_.optimizer);
      request_.with_optimizer && kind.type != spec::OptimizerType::kAdam)
    problems.add("the checkpoint's optimizer is ", kind.name(),
                 ", whose state cannot be written for the other programs: use --no-save-optim for the weights alone");
  problems.raise();
}

TorchValue MegatronExporter::tensor_of(const spec::ParamSpec& spec, TensorKind kind, int64_t tensor_rank) {
  const spec::TensorShard place{request_.tensor, tensor_rank};
  const std::string name = spec.name + suffix_of(kind);
  const std::vector<int64_t> shape = spec::local_shape(spec, place);
  std::vector<StoredRun> runs = {{name, stored_extents(spec, place, order_)}};
  return TorchValue::tensor(is_moment(kind) ? tensors_.moments(shape, std::move(runs), moment_of(kind))
                                            : tensors_.source(shape, std::move(runs)));
}

TorchValue MegatronExporter::step_tensor() {
  step_ = static_cast<float>(manifest().state.optimizer_steps);
  return TorchValue::tensor(store::source_of(store::DType::kFloat32, {}, &step_));
}

TorchValue MegatronExporter::scheduler() const {
  const plan::ScheduleConfig& schedule = config_.schedule;
  const store::TrainingState& state = manifest().state;
  const double warmup = schedule.warmup_samples;
  TorchPairs pairs;
  put(pairs, "max_lr", TorchValue::real(schedule.lr.value_or(0)));
  put(pairs, "warmup_steps",
      warmup == std::floor(warmup) ? number(static_cast<int64_t>(warmup)) : TorchValue::real(warmup));
  put(pairs, "num_steps", number(state.scheduler_samples));
  put(pairs, "warmup_tokens", number(state.scheduler_warmup_tokens));
  put(pairs, "num_tokens", number(state.scheduler_tokens));
  put(pairs, "decay_style", text(table_.find("--lr-decay-style")->values().at(0)));
  put(pairs, "decay_steps", number(schedule.decay_samples));
  put(pairs, "min_lr", TorchValue::real(schedule.min_lr));
  return TorchValue::dict(pairs);
}

// The scheduler has set it when a step is saved, and DeepSpeed's bf16 optimizer takes it from its groups.
std::optional<plan::LrSchedule> MegatronExporter::schedule_now() const {
  if (!config_.schedule.lr) return std::nullopt;
  const store::TrainingState& state = manifest().state;
  plan::LrSchedule schedule(config_.schedule);
  schedule.restore({.num_samples = state.scheduler_samples,
                    .num_tokens = state.scheduler_tokens,
                    .warmup_tokens = state.scheduler_warmup_tokens});
  return schedule;
}

TorchValue MegatronExporter::param_group(const TorchItems& numbers, bool decays) const {
  const config::OptimizerConfig& optimizer = config_.optimizer;
  TorchPairs pairs;
  const std::optional<plan::LrSchedule> schedule = schedule_now();
  const double weight_decay =
      schedule ? schedule->weight_decay().value_or(optimizer.weight_decay) : optimizer.weight_decay;
  put(pairs, "lr", TorchValue::real(schedule ? schedule->lr() : 0));
  put(pairs, "bias_correction", TorchValue::boolean(true));
  put(pairs, "betas",
      TorchValue::tuple({TorchValue::real(optimizer.adam_beta1), TorchValue::real(optimizer.adam_beta2)}));
  put(pairs, "eps", TorchValue::real(optimizer.adam_eps));
  put(pairs, "weight_decay", TorchValue::real(decays ? weight_decay : 0));
  put(pairs, "step", number(manifest().state.optimizer_steps));
  put(pairs, "params", TorchValue::list(numbers));
  return TorchValue::dict(pairs);
}

void MegatronExporter::put_run(TorchPairs& root) const {
  const store::TrainingState& state = manifest().state;
  TorchPairs args = namespace_of(config_, table_);
  put(args, "tensor_model_parallel_size", number(request_.tensor));
  put(args, "pipeline_model_parallel_size", number(request_.pipeline));
  put(args, "padded_vocab_size", number(model_.vocabulary.padded_size));
  put(args, "consumed_train_samples", number(state.consumed_train_samples));
  put(args, "consumed_valid_samples", number(state.consumed_valid_samples));
  put(args, "consumed_train_tokens", number(state.consumed_train_tokens));
  put(root, "args", TorchValue::record("argparse.Namespace", {}, TorchValue::dict(args)));
  put(root, "checkpoint_version", TorchValue::real(kCheckpointVersion));
  put(root, "iteration", number(state.step));
  put(root, "tokens", number(state.consumed_train_tokens));
  TorchPairs vocabulary;
  put(vocabulary, "padded_vocab_size", number(model_.vocabulary.padded_size));
  put(vocabulary, "original_vocab_size", number(model_.vocabulary.size));
  put(root, "checkpoint_info", TorchValue::dict(vocabulary));
}

bool MegatronExporter::is_of_stage(const spec::ParamSpec& spec, int64_t stage) const {
  if (spec.depth == 0) return stage == 0;
  if (spec.depth > model_.num_layers()) return stage == request_.pipeline - 1;
  return (spec.depth - 1) / layers_per_stage() == stage;
}
bool MegatronExporter::has_embedding_copy(int64_t stage) const {
  return shape_.ties_embedding && stage > 0 && stage == request_.pipeline - 1;
}

std::vector<std::vector<RankParam>> MegatronExporter::groups_of(const std::vector<RankParam>& params) {
  std::vector<RankParam> decay, rest;
  for (const RankParam& param : params) (param.spec->weight_decay ? decay : rest).push_back(param);
  const auto half = decay.begin() + static_cast<std::ptrdiff_t>(decay.size() / 2);
  return {{decay.begin(), half}, {half, decay.end()}, rest};
}

void MegatronExporter::write(const fs::path& path, const TorchValue& root) {
  fs::create_directories(path.parent_path());
  store::write_torch_file(path, root);
  const int64_t bytes = file_size_bytes(path);
  ++report_.num_files, report_.num_bytes += bytes;
  progress_->advance(bytes);
}

TorchValue MegatronExporter::adam_state(const std::vector<std::vector<RankParam>>& groups, int64_t tensor_rank) {
  TorchPairs states;
  TorchItems param_groups;
  int64_t count = 0;
  for (size_t group = 0; group < groups.size(); ++group) {
    TorchItems numbers;
    for (const RankParam& param : groups[group]) {
      TorchPairs state;
      put(state, "step", step_tensor());
      put(state, "exp_avg", tensor_of(*param.spec, TensorKind::kExpAvg, tensor_rank));
      put(state, "exp_avg_sq", tensor_of(*param.spec, TensorKind::kExpAvgSq, tensor_rank));
      numbers.push_back(number(count));
      states.emplace_back(number(count++), TorchValue::dict(state));
    }
    param_groups.push_back(param_group(numbers, group + 1 < groups.size()));
  }
  TorchPairs optimizer;
  put(optimizer, "state", TorchValue::dict(states));
  put(optimizer, "param_groups", TorchValue::list(param_groups));
  return TorchValue::dict(optimizer);
}

MegatronExportReport export_megatron(const MegatronExport& request) { return MegatronExporter(request).run(); }

}  // namespace espalier::convert
