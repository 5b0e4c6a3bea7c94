// The family as data.
#include <cmath>

#include "base/format.h"
#include "config/resolving.h"
#include "config/run_config.h"
#include "config/unused_options.h"
#include "tests/families/mlp.h"
#include "tests/families/mlp_shape.h"

namespace espalier::test {
namespace {

using spec::Init;
using spec::ParamSpec;
using spec::Placement;

void add_mlp_options(OptionTable& table, config::FamilyConfig& config, config::FamilyRows where) {
  MlpShape& shape = config.as<MlpShape>();
  if (where == config::FamilyRows::kSize) {
    table.add("--num-layers", shape.num_layers, "layers").required().minimum(1).on_resume(ResumeRule::kRefused);
    table.add("--hidden-size", shape.hidden_size, "width").required().minimum(1).on_resume(ResumeRule::kRefused);
  }
  if (where == config::FamilyRows::kRegularization)
    table.add("--hidden-dropout", shape.hidden_dropout, "dropout before residual additions").minimum(0);
}

void resolve_mlp(const config::Resolving& resolving, config::FamilyConfig& config) {
  const MlpShape& shape = config.as<MlpShape>();
  const int64_t tensor = resolving.run.grid.tensor;
  if (shape.hidden_size % tensor != 0)
    resolving.problems.add(resolving.origin("--tensor-model-parallel-size"), " does not divide the width; use ",
                           plan::divisors_near(tensor, shape.hidden_size));
}

std::vector<ParamSpec> params_of(const MlpShape& shape, int64_t vocabulary) {
  const int64_t h = shape.hidden_size, inner = 4 * h, last = shape.num_layers + 1;
  const Init normal = Init::normal(0.02), scaled = Init::normal(0.02 / std::sqrt(2.0 * shape.num_layers));
  std::vector<ParamSpec> params;
  const auto add = [&](const std::string& name, std::vector<int64_t> sizes, Placement placement, int64_t depth,
                       Init init) {
    params.push_back({.name = name,
                      .shape = std::move(sizes),
                      .tensor_placement = std::move(placement),
                      .depth = depth,
                      .init = init,
                      .weight_decay = init.kind == Init::Kind::kNormal});
  };
  const auto add_norm = [&](const std::string& name, int64_t depth) {
    add(name + ".weight", {h}, Placement::replicated(), depth, Init::constant(1));
    add(name + ".bias", {h}, Placement::replicated(), depth, Init::constant(0));
  };
  add("word_embeddings.weight", {vocabulary, h}, Placement::split(0, {vocabulary}), 0, normal);
  params.back().other_depths = {last};  // the output layer is the same table
  for (int64_t layer = 0; layer < shape.num_layers; ++layer) {
    const std::string name = concat("layers.", layer, ".");
    add_norm(name + "norm", layer + 1);
    add(name + "mlp.dense_h_to_4h.weight", {inner, h}, Placement::split(0, {inner}), layer + 1, normal);
    add(name + "mlp.dense_h_to_4h.bias", {inner}, Placement::split(0, {inner}), layer + 1, Init::constant(0));
    add(name + "mlp.dense_4h_to_h.weight", {h, inner}, Placement::split(1, {inner}), layer + 1, scaled);
    add(name + "mlp.dense_4h_to_h.bias", {h}, Placement::replicated(), layer + 1, Init::constant(0));
  }
  add_norm("final_norm", last);
  return params;
}

spec::ModelSpec mlp_model(const config::RunConfig& run) {
  const MlpShape& shape = run.model.as<MlpShape>();
  const double s = static_cast<double>(run.data.sequence_length), h = static_cast<double>(shape.hidden_size);
  spec::ModelSpec model{.family = "mlp",
                        .description = concat(shape.num_layers, " layers, ", shape.hidden_size, " wide"),
                        .params = params_of(shape, run.vocabulary.padded_size),
                        .depths = std::vector<spec::Depth>(static_cast<size_t>(shape.num_layers + 2)),
                        .vocabulary = run.vocabulary,
                        .hidden_size = shape.hidden_size,
                        .has_dropout = shape.hidden_dropout > 0,
                        .batch_bytes = 28 * s};
  const auto norm = spec::Normalization::kLayerNorm;
  for (size_t number = 0; number < model.depths.size(); ++number) {
    spec::Depth& depth = model.depths[number];
    depth.name = spec::stack_depth_name(static_cast<int64_t>(number), shape.num_layers);
    depth.passed_on = depth.summed_forward = depth.summed_backward = s * h;
    depth.forward_flops = depth.megatron_flops = 2 * s * 8 * h * h;
    depth.ghost = [=](spec::GhostOps& ops, const spec::Ghost& x) {
      return ops.mlp(ops.norm(x, norm, true), 4 * h, 4 * h);
    };
  }
  model.depths.front().forward_flops = model.depths.front().megatron_flops = 0;
  model.depths.front().ghost = [](spec::GhostOps& ops, const spec::Ghost&) { return ops.dropout(ops.look_up_words()); };
  model.depths.back().forward_flops = model.depths.back().megatron_flops =
      2 * s * h * static_cast<double>(run.vocabulary.padded_size);
  model.depths.back().ghost = [=](spec::GhostOps& ops, const spec::Ghost& x) {
    ops.language_model_loss(ops.norm(x, norm, false));
    return spec::Ghost();
  };
  return model;
}

}  // namespace

const config::Family& mlp_family() {
  static const config::Family family{
      .name = "mlp",
      .display = "MLP",
      .kin = "a language model without attention",
      .summary = "Trains MLPs on token files.",
      .new_config = [] { return config::FamilyConfig(MlpShape{}); },
      .add_options = add_mlp_options,
      .resolve = resolve_mlp,
      .find_unused = [](const config::RunConfig&, config::UnusedOptions&) {},
      .num_layers = [](const config::FamilyConfig& config) { return config.as<MlpShape>().num_layers; },
      .model = mlp_model};
  return family;
}

}  // namespace espalier::test
