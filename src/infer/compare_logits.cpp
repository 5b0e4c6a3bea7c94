#include "infer/compare_logits.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include "base/error.h"
#include "ckpt/dtype.h"
#include "ckpt/loader.h"
#include "dist/grid.h"
#include "families/registry.h"
#include "infer/hf_reference.h"
#include "models/build.h"
#include "store/manifest.h"
#include "store/weight_folder.h"
#include "tensor/param_set.h"

namespace espalier::infer {
namespace {

namespace fs = std::filesystem;
using models::NamedTensors;

// What summation leaves grows with the depth: some 1e-6 of the largest logit for each layer, measured. An epsilon of
// 1e-5 for 1e-6 changes those of a small model by 7e-5 of the largest.
constexpr double kToleranceOfLayer = 1e-5;

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

const models::Probe& probe_of(const config::RunConfig& run) {
  const models::Probe* probe = models::runtime_of(*run.family).probe;
  ESPALIER_CHECK(probe != nullptr, run.family->name);
  return *probe;
}

using WeightOf = std::function<at::Tensor(ckpt::LoadedCheckpoint& checkpoint, const std::string& name)>;

NamedTensors our_outputs(const fs::path& step_folder, const config::RunConfig& run, const NamedTensors& inputs,
                         const WeightOf& weight_of) {
  const at::NoGradGuard no_grad;
  ckpt::LoadedCheckpoint checkpoint(step_folder);
  const std::vector<spec::ParamSpec> specs = config::model_spec(run).params;
  tensor::ParamSet params(specs, spec::TensorShard{}, at::kFloat, /*with_grad=*/false);
  for (tensor::Param& param : params.params()) param.value.copy_(weight_of(checkpoint, param.spec->name));
  return probe_of(run).outputs(nn::LayerBuilder{params, dist::single_process()}, run, inputs);
}

at::Tensor stored_weight(ckpt::LoadedCheckpoint& checkpoint, const std::string& name) { return checkpoint.read(name); }

// Rounded as the export has rounded them; an fp32 folder was made from the master weights, where there are any.
WeightOf exported_weight(store::DType hf_type, bool ema) {
  return [hf_type, ema](ckpt::LoadedCheckpoint& checkpoint, const std::string& name) {
    if (ema) return checkpoint.read(store::ema_of(name)).to(ckpt::scalar_type_of(hf_type));
    const bool master = hf_type == store::DType::kFloat32 && checkpoint.has(name + ".master");
    return checkpoint.read(master ? name + ".master" : name).to(ckpt::scalar_type_of(hf_type));
  };
}

config::RunConfig saved_run(const fs::path& step_folder, const std::vector<std::string>& options) {
  return families::read_saved_run(store::read_manifest(step_folder), step_folder.string(), options);
}

// Rows of the vocabulary that only one side has are left out.
double largest_difference(const at::Tensor& ours, const at::Tensor& theirs) {
  const int64_t rows = std::min(ours.size(-1), theirs.size(-1));
  return (ours.narrow(-1, 0, rows) - theirs.narrow(-1, 0, rows)).abs().max().item<double>();
}

}  // namespace

NamedTensors checkpoint_outputs(const fs::path& step_folder, const NamedTensors& inputs) {
  return our_outputs(step_folder, saved_run(step_folder, {}), inputs, stored_weight);
}

LogitsComparison compare_logits(const fs::path& step_folder, const fs::path& hf_folder, const ComparedModel& model) {
  const at::NoGradGuard no_grad;
  const config::RunConfig run = saved_run(step_folder, model.options);
  const bool is_import = model.conversion == Conversion::kImport;
  LogitsComparison comparison;
  comparison.inputs = model.inputs.empty() ? probe_of(run).inputs(run) : model.inputs;
  std::optional<at::ScalarType> rounding;
  if (is_import) rounding = ckpt::scalar_type_of(store::read_manifest(step_folder).tensors.at(0).dtype);
  const NamedTensors theirs = hf_reference(hf_folder, comparison.inputs, rounding);
  const WeightOf weight_of = is_import ? WeightOf(stored_weight) : exported_weight(type_of(hf_folder), model.ema);
  comparison.ours = our_outputs(step_folder, run, comparison.inputs, weight_of);
  for (const auto& [name, ours] : comparison.ours) {
    comparison.largest_difference = std::max(comparison.largest_difference, largest_difference(ours, theirs.at(name)));
    comparison.largest_logit = std::max(comparison.largest_logit, theirs.at(name).abs().max().item<double>());
  }
  if (!model.options.empty()) {
    comparison.changed_by = 0;
    for (const auto& [name, own] : our_outputs(step_folder, saved_run(step_folder, {}), comparison.inputs, weight_of))
      comparison.changed_by = std::max(*comparison.changed_by, largest_difference(comparison.ours.at(name), own));
  }
  const at::Tensor& ids = comparison.inputs.at("ids");
  comparison.num_tokens = ids.numel();
  comparison.not_reached = probe_of(run).not_reached(run, ids.size(1));
  comparison.tolerance =
      kToleranceOfLayer * static_cast<double>(config::model_spec(run).num_layers() + 1) * comparison.largest_logit;
  return comparison;
}

}  // namespace espalier::infer
