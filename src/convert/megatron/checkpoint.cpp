#include "convert/megatron/checkpoint.h"

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/format.h"
#include "convert/copy_pieces.h"
#include "convert/megatron/internal/read.h"

namespace espalier::convert {
namespace {

using store::TorchValue;

const TorchValue* find_any(const TorchValue& dict, std::initializer_list<const char*> keys) {
  for (const char* key : keys)
    if (const TorchValue* value = dict.find(key); value != nullptr && !value->is_none()) return value;
  return nullptr;
}

std::optional<int64_t> integer_at(const TorchValue& dict, const char* key, const std::filesystem::path& file) {
  const TorchValue* value = dict.find(key);
  if (value == nullptr || value->is_none()) return std::nullopt;
  const double number = number_in(*value, concat(file.string(), ": ", key));
  if (std::abs(number) > 9e15 || number != std::floor(number)) refuse(file, key, "a whole number", value->describe());
  return static_cast<int64_t>(number);
}

bool is_table(const TorchValue& value) { return value.is_dict() || value.kind() == TorchValue::Kind::kRecord; }

void read_scheduler(const TorchValue& root, const std::filesystem::path& file, store::TrainingState& state) {
  const TorchValue* scheduler = find_any(root, {"lr_scheduler", "opt_param_scheduler"});
  if (scheduler == nullptr || !is_table(*scheduler)) return;
  // Old schedulers counted iterations.
  state.scheduler_samples = integer_at(*scheduler, "num_steps", file).value_or(0);
  state.scheduler_tokens = integer_at(*scheduler, "num_tokens", file).value_or(0);
  state.scheduler_warmup_tokens = integer_at(*scheduler, "warmup_tokens", file).value_or(0);
}

void read_loss_scale(const TorchValue& optimizer, const std::filesystem::path& file, store::TrainingState& state) {
  const TorchValue* scaler = find_any(optimizer, {"grad_scaler"});
  if (scaler == nullptr || !is_table(*scaler)) return;
  if (const TorchValue* scale = scaler->find("scale")) state.loss_scale = number_in(*scale, file.string() + ": scale");
  state.loss_scale_growth_tracker = integer_at(*scaler, "growth_tracker", file).value_or(0);
  state.loss_scale_hysteresis_tracker = integer_at(*scaler, "hysteresis_tracker", file).value_or(0);
}

void check_same(const std::filesystem::path& file, const char* key, std::optional<int64_t> found, int64_t expected,
                const std::filesystem::path& first) {
  if (found && *found != expected)
    refuse(file, key, concat(expected, ", as in ", first.string()), std::to_string(*found));
}

void check_layout(const MegatronCheckpoint& checkpoint, const TorchValue& args, const std::filesystem::path& file) {
  if (checkpoint.files.format == MegatronFormat::kUniversal) return;
  if (const auto size = integer_at(args, "tensor_model_parallel_size", file); size && *size != checkpoint.files.tensor)
    refuse(file, "args.tensor_model_parallel_size", concat(checkpoint.files.tensor, ", the tensor ranks with files"),
           concat(*size, ". Files of ", *size > checkpoint.files.tensor ? "some" : "more than its", " ranks are ",
                  *size > checkpoint.files.tensor ? "missing" : "there"));
  if (const auto size = integer_at(args, "pipeline_model_parallel_size", file);
      size && *size != checkpoint.files.pipeline)
    refuse(file, "args.pipeline_model_parallel_size",
           concat(checkpoint.files.pipeline, ", the pipeline ranks with files"),
           concat(*size, ". Files of ", *size > checkpoint.files.pipeline ? "some" : "more than its", " ranks are ",
                  *size > checkpoint.files.pipeline ? "missing" : "there"));
}

}  // namespace

const char* suffix_of(TensorKind kind) {
  switch (kind) {
    case TensorKind::kWeight: return "";
    case TensorKind::kMaster: return ".master";
    case TensorKind::kExpAvg: return ".exp_avg";
    case TensorKind::kExpAvgSq: return ".exp_avg_sq";
  }
  return "";
}

void refuse(const std::filesystem::path& file, const std::string& key, const std::string& expected,
            const std::string& found) {
  throw UserError(concat(file.string(), ": ", key, ": expected ", expected, ", found ", found), ExitCode::kBadData);
}

const store::TorchItems& items_of(const TorchValue& value, const std::string& what) {
  if (!value.is_sequence()) throw UserError(what + ": expected a list, found " + value.describe(), ExitCode::kBadData);
  return value.items();
}

const store::TorchPairs& pairs_of(const TorchValue& value, const std::string& what) {
  if (!value.is_dict()) throw UserError(what + ": expected a dict, found " + value.describe(), ExitCode::kBadData);
  return value.pairs();
}

double number_in(const TorchValue& value, const std::string& what) {
  if (!value.is_tensor()) return value.as_float(what);
  const store::TensorView& view = value.as_view(what);
  if (view.num_elements() != 1)
    throw UserError(what + ": expected one number, found " + value.describe(), ExitCode::kBadData);
  std::vector<uint8_t> bytes(static_cast<size_t>(view.num_bytes()));
  store::TensorReader(view).read(bytes.data());
  switch (view.dtype) {
    case store::DType::kInt64: {
      int64_t number = 0;
      std::memcpy(&number, bytes.data(), sizeof(number));
      return static_cast<double>(number);
    }
    case store::DType::kInt32: {
      int32_t number = 0;
      std::memcpy(&number, bytes.data(), sizeof(number));
      return number;
    }
    case store::DType::kFloat64:
    case store::DType::kFloat32:
    case store::DType::kFloat16:
    case store::DType::kBFloat16: {
      double number = 0;
      copy_elements(view.dtype, bytes.data(), 1, store::DType::kFloat64, &number, 1, 1);
      return number;
    }
    default: throw UserError(what + ": expected a number, found " + value.describe(), ExitCode::kBadData);
  }
}

void read_run_state(const TorchValue& root, const std::filesystem::path& file, size_t model_rank,
                    MegatronCheckpoint& checkpoint) {
  store::TrainingState& state = checkpoint.state;
  std::optional<int64_t> iteration = integer_at(root, "iteration", file);
  if (!iteration) iteration = integer_at(root, "total_iters", file);
  if (!iteration) iteration = integer_at(root, "global_steps", file);
  const TorchValue* args = root.find("args");
  const bool has_args = args != nullptr && is_table(*args);
  if (model_rank > 0) {
    check_same(file, "iteration", iteration, state.step, checkpoint.files.ranks[0]);
    if (has_args) check_layout(checkpoint, *args, file);
    if (has_args)
      check_same(file, "args.consumed_train_samples", integer_at(*args, "consumed_train_samples", file),
                 state.consumed_train_samples, checkpoint.files.ranks[0]);
    return;
  }
  if (!iteration) refuse(file, "iteration", "a number", "nothing");
  state.step = *iteration;
  if (has_args) {
    checkpoint.args = *args;
    check_layout(checkpoint, *args, file);
    state.consumed_train_samples = integer_at(*args, "consumed_train_samples", file).value_or(0);
    state.consumed_valid_samples = integer_at(*args, "consumed_valid_samples", file).value_or(0);
    state.consumed_train_tokens = integer_at(*args, "consumed_train_tokens", file).value_or(0);
    if (state.consumed_train_tokens == 0)
      state.consumed_train_tokens = state.consumed_train_samples * integer_at(*args, "seq_length", file).value_or(0);
  }
  if (const auto tokens = integer_at(root, "tokens", file)) state.consumed_train_tokens = *tokens;
  state.skipped_steps = integer_at(root, "skipped_steps", file).value_or(0);
  if (const TorchValue* version = root.find("checkpoint_version"))
    checkpoint.version = number_in(*version, file.string() + ": checkpoint_version");
  if (const TorchValue* info = root.find("checkpoint_info"); info != nullptr && is_table(*info))
    checkpoint.original_vocab_size = integer_at(*info, "original_vocab_size", file).value_or(0);
  read_scheduler(root, file, state);
  if (const TorchValue* optimizer = root.find("optimizer"); optimizer != nullptr && is_table(*optimizer))
    read_loss_scale(*optimizer, file, state);
}

std::optional<int64_t> adam_steps(const TorchValue& optimizer) {
  const TorchValue* groups = optimizer.find("param_groups");
  if (groups != nullptr && groups->is_sequence())
    for (const TorchValue& group : groups->items())
      if (const TorchValue* step = group.find("step"); step != nullptr && !step->is_none())
        return static_cast<int64_t>(number_in(*step, "optimizer.param_groups[].step"));
  const TorchValue* states = optimizer.find("state");
  if (states != nullptr && states->is_dict())
    for (const auto& [number, state] : states->pairs())
      if (state.is_dict())
        if (const TorchValue* step = state.find("step"); step != nullptr && !step->is_none())
          return static_cast<int64_t>(number_in(*step, "optimizer.state[].step"));
  return std::nullopt;
}

void set_optimizer_steps(int64_t steps, const std::filesystem::path& file, MegatronCheckpoint& checkpoint) {
  int64_t& known = checkpoint.state.optimizer_steps;
  if (checkpoint.has_optimizer && known != steps)
    refuse(file, "the optimizer's step", concat(known, ", as in the files before it"), std::to_string(steps));
  known = steps;
  checkpoint.has_optimizer = true;
}

void read_tensor_states(const TorchValue& optimizer, const std::vector<TorchValue>& masters,
                        const std::vector<NamedView>& params, const RankPlace& place, MegatronCheckpoint& checkpoint) {
  const TorchValue& states = optimizer.at("state");
  std::vector<int64_t> numbers;  // of the parameters, by group
  const std::string groups = place.file.string() + ": optimizer.param_groups";
  for (const TorchValue& group : items_of(optimizer.at("param_groups"), groups))
    for (const TorchValue& number : items_of(group.at("params"), groups + "[].params"))
      numbers.push_back(number.as_int(place.file.string() + ": optimizer.param_groups[].params"));
  if (numbers.size() != params.size())
    refuse(place.file, "optimizer.param_groups", concat(params.size(), " parameters, as the model has"),
           std::to_string(numbers.size()));
  const bool separate = !masters.empty();
  if (separate && masters.size() != params.size())
    refuse(place.file, "optimizer.fp32_from_fp16_params", concat(params.size(), " tensors, one for each parameter"),
           std::to_string(masters.size()));
  const auto add = [&](const NamedView& param, TensorKind kind, const TorchValue& value, const std::string& key) {
    const store::TensorView& view = value.as_view(place.file.string() + ": " + key);
    if (view.shape != param.view.shape)
      refuse(place.file, concat(key, " (", param.name, ")"), store::describe(store::DType::kFloat32, param.view.shape),
             store::describe(view.dtype, view.shape));
    checkpoint.shards.push_back(
        {param.name, kind, place.tensor, param.copy, view, 0, 0, view.num_elements(), true, key});
  };
  for (size_t at = 0; at < params.size(); ++at) {
    const TorchValue* state = states.find(numbers[at]);
    const std::string key = concat("optimizer.state[", numbers[at], "]");
    if (state == nullptr || !state->is_dict())
      refuse(place.file, key, concat("the moments of ", params[at].name), "nothing");
    add(params[at], TensorKind::kExpAvg, state->at("exp_avg"), key + ".exp_avg");
    add(params[at], TensorKind::kExpAvgSq, state->at("exp_avg_sq"), key + ".exp_avg_sq");
    if (separate)
      add(params[at], TensorKind::kMaster, masters[at], concat("optimizer.fp32_from_fp16_params[", at, "]"));
    else
      add(params[at], TensorKind::kMaster, TorchValue::tensor(params[at].view), params[at].key);
  }
  const auto steps = adam_steps(optimizer);
  if (!steps) refuse(place.file, "optimizer.param_groups[].step", "Adam's number of steps", "nothing");
  set_optimizer_steps(*steps, place.file, checkpoint);
}

MegatronCheckpoint read_megatron_checkpoint(const MegatronFiles& files, bool with_optimizer) {
  MegatronCheckpoint checkpoint;
  checkpoint.files = files;
  switch (files.format) {
    case MegatronFormat::kMegatron: read_megatron(checkpoint, with_optimizer); break;
    case MegatronFormat::kDeepSpeed: read_deepspeed(checkpoint, with_optimizer); break;
    case MegatronFormat::kUniversal: read_universal(checkpoint, with_optimizer); break;
  }
  // Of files without the module's structure: upstream has one model for DeepSpeed's pipeline engine.
  for (const FamilyFormats* formats : all_formats())
    if (checkpoint.formats == nullptr && formats->megatron.has_pipeline_module) checkpoint.formats = formats;
  return checkpoint;
}

}  // namespace espalier::convert
