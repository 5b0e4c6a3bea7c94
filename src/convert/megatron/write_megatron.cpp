// Megatron's own layout: one file for each tensor and pipeline rank.
#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "convert/megatron/internal/exporter.h"

namespace espalier::convert {

namespace fs = std::filesystem;
using store::TorchItems;
using store::TorchPairs;
using store::TorchValue;

namespace {

// The state of a module: dicts of modules, and what the innermost have of tensors.
struct ModuleDict {
  struct Entry;
  std::vector<Entry> modules;
  TorchPairs tensors;

  ModuleDict& at(const std::vector<std::string>& path);
  TorchValue value() const;
};

struct ModuleDict::Entry {
  std::string key;
  ModuleDict module;
};

ModuleDict& ModuleDict::at(const std::vector<std::string>& path) {
  ModuleDict* dict = this;
  for (const std::string& key : path) {
    auto found =
        std::find_if(dict->modules.begin(), dict->modules.end(), [&](const Entry& entry) { return entry.key == key; });
    if (found == dict->modules.end()) found = dict->modules.insert(found, {key, ModuleDict()});
    dict = &found->module;
  }
  return *dict;
}

TorchValue ModuleDict::value() const {
  if (!tensors.empty()) return TorchValue::ordered_dict(tensors);
  TorchPairs pairs;
  for (const Entry& entry : modules) put(pairs, entry.key, entry.module.value());
  return TorchValue::dict(pairs);
}

}  // namespace

void MegatronExporter::write_megatron() {
  for (int64_t stage = 0; stage < request_.pipeline; ++stage)
    for (int64_t rank = 0; rank < request_.tensor; ++rank) {
      TorchPairs root;
      put_run(root);
      std::vector<RankParam> params;
      put(root, "model", megatron_module(stage, rank, params));
      if (has_optimizer_) put(root, "optimizer", megatron_optimizer(params, rank));
      put(root, "lr_scheduler", scheduler());
      std::string name = format_printf("mp_rank_%02d", static_cast<int>(rank));
      if (request_.pipeline > 1) name += format_printf("_%03d", static_cast<int>(stage));
      write(report_.folder / name / "model_optim_rng.pt", TorchValue::dict(root));
    }
}

TorchValue MegatronExporter::megatron_module(int64_t stage, int64_t rank, RankParams& params) {
  ModuleDict module;
  std::set<std::string> placed;
  const auto place = [&](const ModuleSection& section, const spec::ParamSpec& spec) {
    std::string key = spec.name.substr(section.strip.size());
    const std::string layers = "layers.";
    if (spec.name.starts_with(layers))  // numbered within the stage
      key = concat(layers, spec.depth - 1 - stage * layers_per_stage(), spec.name.substr(spec.name.find('.', 7)));
    put(module.at(section.path).tensors, key, tensor_of(spec, TensorKind::kWeight, rank));
    params.push_back({&spec, spec.name});
  };
  for (const ModuleSection& section : codec_->sections) {
    if (section.ours.empty()) {
      if (has_embedding_copy(stage)) place(section, word_embedding());
      continue;
    }
    for (const spec::ParamSpec& spec : model_.params)
      if (is_of_stage(spec, stage) && spec.name.starts_with(section.ours) && placed.insert(spec.name).second)
        place(section, spec);
  }
  for (const spec::ParamSpec& spec : model_.params)
    ESPALIER_CHECK(!is_of_stage(spec, stage) || placed.contains(spec.name), spec.name, " has no place in the module");
  return module.value();
}

TorchValue MegatronExporter::megatron_optimizer(const RankParams& params, int64_t rank) {
  const auto groups = groups_of(params);
  TorchValue adam = adam_state(groups, rank);
  if (is_fp32()) return adam;
  TorchItems masters;
  for (const auto& group : groups) {
    TorchItems of_group;
    for (const RankParam& param : group) of_group.push_back(tensor_of(*param.spec, TensorKind::kMaster, rank));
    masters.push_back(TorchValue::list(of_group));
  }
  TorchPairs optimizer;
  put(optimizer, "optimizer", adam);
  if (config_.training.precision == plan::Precision::kFp16) {
    const store::TrainingState& state = manifest().state;
    loss_scale_ = static_cast<float>(state.loss_scale);
    TorchPairs scaler;
    put(scaler, "scale", TorchValue::tensor(store::source_of(store::DType::kFloat32, {1}, &loss_scale_)));
    put(scaler, "growth_tracker", number(state.loss_scale_growth_tracker));
    put(scaler, "hysteresis_tracker", number(state.loss_scale_hysteresis_tracker));
    put(optimizer, "grad_scaler", TorchValue::dict(scaler));
  }
  put(optimizer, "fp32_from_fp16_params", TorchValue::list(masters));
  return TorchValue::dict(optimizer);
}

}  // namespace espalier::convert
