// DeepSpeed's pipeline layout, with the numbers of layers and the groups of parameters of BigScience's
// Megatron-DeepSpeed.
#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "convert/megatron/internal/exporter.h"
#include "spec/shard.h"

namespace espalier::convert {

namespace fs = std::filesystem;
using store::TorchItems;
using store::TorchPairs;
using store::TorchValue;

constexpr const char* kDeepSpeedVersion = "0.19.8";  // whose layout this is

int64_t MegatronExporter::layer_number(const spec::ParamSpec& spec) const {
  const int64_t layers = model_.num_layers();
  if (spec.depth == 0) return 1;
  if (spec.depth <= layers) return spec.depth + 2;
  return spec.name == "lm_head.weight" ? layers + 5 : layers + 4;
}

// Name within its layer's file.
std::string MegatronExporter::name_in_layer(const spec::ParamSpec& spec) const {
  if (spec.name.starts_with("layers.")) return spec.name.substr(spec.name.find('.', 7) + 1);
  const std::string norm = "final_layernorm.";
  return spec.name.starts_with(norm) ? spec.name.substr(norm.size()) : spec.name;
}

std::string MegatronExporter::pipeline_name(const spec::ParamSpec& spec) const {
  if (spec.depth == 0 && shape_.ties_embedding) return "tied_modules.embed." + spec.name;
  return concat(layer_number(spec), ".", name_in_layer(spec));
}

void MegatronExporter::write_deepspeed() {
  for (int64_t rank = 0; rank < request_.tensor; ++rank) {
    std::map<int64_t, TorchPairs> layers;
    for (const spec::ParamSpec& spec : model_.params)
      put(layers[layer_number(spec)], name_in_layer(spec), tensor_of(spec, TensorKind::kWeight, rank));
    for (auto& [layer, pairs] : layers) {
      const fs::path path = report_.folder / format_printf("layer_%02d-model_%02d-model_states.pt",
                                                           static_cast<int>(layer), static_cast<int>(rank));
      write(path, TorchValue::ordered_dict(pairs));
    }
  }
  for (int64_t stage = 0; stage < request_.pipeline; ++stage)
    for (int64_t rank = 0; rank < request_.tensor; ++rank) write_model_rank(stage, rank);
}

MegatronExporter::RankParams MegatronExporter::pipeline_params(int64_t stage) const {
  RankParams params;
  if (has_embedding_copy(stage))  // the whole embedding stage is repeated, but for its norm
    for (const spec::ParamSpec& spec : model_.params)
      if (spec.depth == 0 && spec.name.find("norm.") == std::string::npos)
        params.push_back({&spec, pipeline_name(spec)});
  for (const spec::ParamSpec& spec : model_.params)
    if (is_of_stage(spec, stage)) params.push_back({&spec, pipeline_name(spec)});
  return params;
}

void MegatronExporter::write_model_rank(int64_t stage, int64_t rank) {
  const int64_t model_rank = stage * request_.tensor + rank;
  const auto groups = groups_of(pipeline_params(stage));
  const store::TrainingState& state = manifest().state;
  TorchItems shapes;
  for (const auto& group : groups) {
    TorchPairs of_group;
    for (const RankParam& param : group)
      put(of_group, param.name, TorchValue::size(spec::local_shape(*param.spec, {request_.tensor, rank})));
    shapes.push_back(TorchValue::ordered_dict(of_group));
  }
  const bool is_partitioned = has_optimizer_ && !is_fp32();
  TorchPairs root;
  put(root, "module", TorchValue());
  put(root, "buffer_names", TorchValue::list({}));
  put(root, "optimizer", has_optimizer_ && !is_partitioned ? adam_state(groups, rank) : TorchValue());
  put(root, "param_shapes", is_partitioned ? TorchValue::list(shapes) : TorchValue());
  put(root, "lr_scheduler", scheduler());
  for (const char* key :
       {"frozen_param_shapes", "shared_params", "frozen_param_fragments", "data_sampler", "random_ltd"})
    put(root, key, TorchValue());
  put(root, "sparse_tensor_module_names", TorchValue::set({}));
  put(root, "skipped_steps", number(state.skipped_steps));
  put(root, "global_steps", number(state.step));
  put(root, "global_samples", number(state.consumed_train_samples));
  put(root, "dp_world_size", number(request_.data));
  put(root, "mp_world_size", number(request_.tensor * request_.pipeline));
  put(root, "ds_config", TorchValue::dict({}));
  put(root, "ds_version", text(kDeepSpeedVersion));
  put_run(root);
  write(report_.folder / format_printf("mp_rank_%02d_model_states.pt", static_cast<int>(model_rank)),
        TorchValue::dict(root));
  if (!is_partitioned) return;
  for (int64_t data = 0; data < request_.data; ++data) {
    const std::string name = format_printf("bf16_zero_pp_rank_%d_mp_rank_%02d_optim_states.pt", static_cast<int>(data),
                                           static_cast<int>(model_rank));
    TorchPairs file;
    put(file, "optimizer_state_dict", partition(groups, rank, data));
    put(file, "ds_config", TorchValue::dict({}));
    put(file, "ds_version", text(kDeepSpeedVersion));
    write(report_.folder / name, TorchValue::dict(file));
  }
}

TorchValue MegatronExporter::partition(const std::vector<RankParams>& groups, int64_t rank, int64_t data) {
  TorchPairs states, optimizer, base;
  TorchItems param_groups, masters, paddings, counts, mappings;
  for (size_t group = 0; group < groups.size(); ++group) {
    int64_t total = 0;
    const spec::TensorShard place{request_.tensor, rank};
    for (const RankParam& param : groups[group]) total += spec::num_local_elements(*param.spec, place);
    const int64_t multiple = 2 * request_.data, size = (total + multiple - 1) / multiple * multiple / request_.data;
    const int64_t begin = data * size, end = begin + size;
    std::map<TensorKind, std::vector<StoredRun>> runs;
    TorchPairs mapping;
    int64_t position = 0;
    for (const RankParam& param : groups[group]) {
      const int64_t count = spec::num_local_elements(*param.spec, place);
      const int64_t from = std::max(begin, position) - position, to = std::min(end, position + count) - position;
      if (from < to) {
        const auto extents = spec::clip_to_local(stored_extents(*param.spec, place, order_), from, to);
        for (const TensorKind kind : {TensorKind::kMaster, TensorKind::kExpAvg, TensorKind::kExpAvgSq})
          runs[kind].push_back({param.spec->name + suffix_of(kind), extents});
        put(mapping, param.name,
            TorchValue::record("deepspeed.utils.tensor_fragment.fragment_address",
                               {number(to - from), number(position + from - begin)}, TorchValue()));
      }
      position += count;
    }
    const int64_t zeros = std::clamp<int64_t>(end - total, 0, size);
    const auto flat = [&](TensorKind kind) {
      return TorchValue::tensor(is_moment(kind)
                                    ? tensors_.moments({size}, std::move(runs[kind]), moment_of(kind), zeros)
                                    : tensors_.source({size}, std::move(runs[kind]), zeros));
    };
    masters.push_back(flat(TensorKind::kMaster));
    TorchPairs state;
    put(state, "step", step_tensor());
    put(state, "exp_avg", flat(TensorKind::kExpAvg));
    put(state, "exp_avg_sq", flat(TensorKind::kExpAvgSq));
    const auto key = number(static_cast<int64_t>(group));
    states.emplace_back(key, TorchValue::dict(state));
    param_groups.push_back(param_group({key}, group + 1 < groups.size()));
    paddings.push_back(number(zeros));
    counts.push_back(number(request_.data));
    mappings.push_back(TorchValue::ordered_dict(mapping));
  }
  put(base, "state", TorchValue::dict(states));
  put(base, "param_groups", TorchValue::list(param_groups));
  put(optimizer, "clip_grad", TorchValue::real(config_.optimizer.clip_grad));
  put(optimizer, "base_optimizer_state", TorchValue::dict(base));
  put(optimizer, "single_partition_of_fp32_groups", TorchValue::list(masters));
  put(optimizer, "group_paddings", TorchValue::list(paddings));
  put(optimizer, "partition_count", TorchValue::list(counts));
  put(optimizer, "ds_version", text(kDeepSpeedVersion));
  put(optimizer, "param_slice_mappings", TorchValue::list(mappings));
  return TorchValue::dict(optimizer);
}

}  // namespace espalier::convert
