#include "infer/compare_logits.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <functional>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/format.h"
#include "ckpt/dtype.h"
#include "ckpt/loader.h"
#include "dist/grid.h"
#include "families/registry.h"
#include "infer/hf_reference.h"
#include "models/gpt/model.h"
#include "store/weight_folder.h"
#include "tensor/param_set.h"

namespace espalier::infer {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kRows = 2, kLongest = 37;
// What summation leaves grows with the depth: some 1e-6 of the largest logit for each layer, measured. An epsilon of
// 1e-5 for 1e-6 changes those of a small model by 7e-5 of the largest.
constexpr double kToleranceOfLayer = 1e-5;

// Spread over the vocabulary, the same every time: a multiplicative congruential sequence (Park & Miller 1988).
at::Tensor fixed_ids(int64_t length, int64_t vocab_size) {
  at::Tensor ids = at::empty({kRows, length}, at::kLong);
  uint64_t state = 1;
  for (int64_t i = 0; i < ids.numel(); ++i) {
    state = state * 48271 % 2147483647;
    ids.data_ptr<int64_t>()[i] = static_cast<int64_t>(state % static_cast<uint64_t>(vocab_size));
  }
  return ids;
}

std::vector<std::string> parts_not_reached(const families::GptConfig& config, int64_t length) {
  std::vector<std::string> parts;
  if (config.window_size >= length)
    parts.push_back(concat("its window of ", format_count(config.window_size), " tokens"));
  const spec::RopeScaling& scaling = config.rope_scaling;
  if (scaling.kind == spec::RopeScaling::Kind::kLongRope && scaling.original_max_position_embeddings >= length)
    parts.push_back(concat("the factors of positions beyond ", format_count(scaling.original_max_position_embeddings)));
  return parts;
}

// The type of most weights of a folder.
store::DType type_of(const fs::path& hf_folder) {
  std::map<store::DType, int64_t> bytes;
  store::DType usual = store::DType::kFloat32;
  for (const auto& [name, view] : store::open_weights(hf_folder)) {
    bytes[view.dtype] += view.num_bytes();
    if (bytes[view.dtype] > bytes[usual]) usual = view.dtype;
  }
  return usual;
}

using WeightOf = std::function<at::Tensor(ckpt::LoadedCheckpoint& checkpoint, const std::string& name)>;

at::Tensor our_logits(const fs::path& step_folder, const at::Tensor& ids, const WeightOf& weight_of) {
  const at::NoGradGuard no_grad;
  ckpt::LoadedCheckpoint checkpoint(step_folder);
  const families::GptConfig config =
      families::gpt_config(families::read_saved_run(checkpoint.manifest(), step_folder.string()));
  tensor::ParamSet params(families::gpt_params(config), spec::TensorShard{}, at::kFloat, /*with_grad=*/false);
  for (tensor::Param& param : params.params()) param.value.copy_(weight_of(checkpoint, param.spec->name));
  const models::GptModel model(nn::LayerBuilder{params, dist::single_process()}, config, models::GptModel::Options{});
  const at::Tensor positions = at::arange(ids.size(1), at::kLong).expand_as(ids).contiguous();
  const nn::ForwardContext context{.attention = model.attention_context()};
  return model.logits(model.hidden_states(ids, positions, context)).transpose(0, 1);  // [b, s, V]
}

// Rounded as the export has rounded them; an fp32 folder was made from the master weights, where there are any.
WeightOf exported_weight(store::DType hf_type) {
  return [hf_type](ckpt::LoadedCheckpoint& checkpoint, const std::string& name) {
    const bool master = hf_type == store::DType::kFloat32 && checkpoint.has(name + ".master");
    return checkpoint.read(master ? name + ".master" : name).to(ckpt::scalar_type_of(hf_type));
  };
}

}  // namespace

at::Tensor checkpoint_logits(const fs::path& step_folder, const at::Tensor& ids) {
  return our_logits(step_folder, ids,
                    [](ckpt::LoadedCheckpoint& checkpoint, const std::string& name) { return checkpoint.read(name); });
}

LogitsComparison compare_logits(const fs::path& step_folder, const fs::path& hf_folder, Conversion conversion) {
  const at::NoGradGuard no_grad;
  const store::Manifest manifest = store::read_manifest(step_folder);
  const families::GptConfig config = families::gpt_config(families::read_saved_run(manifest, step_folder.string()));
  const at::Tensor ids = fixed_ids(std::min(kLongest, config.max_position_embeddings), config.vocab_size);
  const store::DType hf_type = type_of(hf_folder);
  std::optional<at::ScalarType> rounding;
  if (conversion == Conversion::kImport) rounding = ckpt::scalar_type_of(manifest.tensors.at(0).dtype);
  const at::Tensor theirs = hf_reference_logits(hf_folder, ids, rounding);
  const at::Tensor ours = conversion == Conversion::kImport ? checkpoint_logits(step_folder, ids)
                                                            : our_logits(step_folder, ids, exported_weight(hf_type));
  const int64_t rows = std::min(ours.size(2), theirs.size(2));
  const at::Tensor difference = (ours.narrow(2, 0, rows) - theirs.narrow(2, 0, rows)).abs();
  LogitsComparison comparison{.num_tokens = ids.numel(),
                              .not_reached = parts_not_reached(config, ids.size(1)),
                              .largest_difference = difference.max().item<double>(),
                              .largest_logit = theirs.abs().max().item<double>()};
  comparison.tolerance = kToleranceOfLayer * static_cast<double>(config.num_layers + 1) * comparison.largest_logit;
  return comparison;
}

}  // namespace espalier::infer
