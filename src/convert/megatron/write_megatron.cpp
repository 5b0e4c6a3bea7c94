// Megatron's own layout: one file for each tensor and pipeline rank.
#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "convert/megatron/internal/exporter.h"

namespace espalier::convert {

namespace fs = std::filesystem;
using store::TorchItems;
using store::TorchPairs;
using store::TorchValue;

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
  TorchPairs words, positions, encoder, language_model, module;
  for (const spec::ParamSpec& spec : specs_) {
    if (!is_of_stage(spec, stage)) continue;
    params.push_back({&spec, spec.name});
    const TorchValue value = tensor_of(spec, TensorKind::kWeight, rank);
    const std::string word = "word_embeddings.", position = "position_embeddings.", layers = "layers.";
    if (spec.name.starts_with(word)) {
      put(words, spec.name.substr(word.size()), value);
    } else if (spec.name.starts_with(position)) {
      put(positions, spec.name.substr(position.size()), value);
    } else if (spec.name.starts_with(layers)) {  // numbered within the stage
      const int64_t local = spec.depth - 1 - stage * layers_per_stage();
      put(encoder, concat(layers, local, spec.name.substr(spec.name.find('.', layers.size()))), value);
    } else if (spec.name == "lm_head.weight") {
      put(language_model, "output_layer", TorchValue::ordered_dict({{text("weight"), value}}));
    } else {
      put(encoder, spec.name, value);
    }
  }
  if (!words.empty()) {
    TorchPairs embedding;
    put(embedding, "word_embeddings", TorchValue::ordered_dict(words));
    if (!positions.empty()) put(embedding, "position_embeddings", TorchValue::ordered_dict(positions));
    put(language_model, "embedding", TorchValue::dict(embedding));
  }
  put(language_model, "encoder", TorchValue::ordered_dict(encoder));
  put(module, "language_model", TorchValue::dict(language_model));
  if (has_embedding_copy(stage)) {
    params.push_back({&specs_[0], specs_[0].name});
    const TorchValue value = tensor_of(specs_[0], TensorKind::kWeight, rank);
    put(module, "word_embeddings_for_head", TorchValue::ordered_dict({{text("weight"), value}}));
  }
  return TorchValue::dict(module);
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
