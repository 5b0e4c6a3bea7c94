#include "infer/load_model.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "ckpt/loader.h"
#include "families/registry.h"
#include "kernels/int8_weights.h"
#include "models/build.h"
#include "plan/near_numbers.h"
#include "spec/shard.h"
#include "store/run_folder.h"
#include "text/stored_tokenizer.h"

namespace espalier::infer {
namespace {

at::ScalarType compute_type(const std::string& name) {
  if (name == "fp32") return at::kFloat;
  if (name == "bf16") return at::kBFloat16;
  if (name == "fp16") return at::kHalf;
  throw UserError(concat("the checkpoint's compute type is '", name, "'; this program knows fp32, bf16 and fp16"),
                  ExitCode::kBadData);
}

// Of those parameters that have values now; the names of all are checked.
void load_weights(ckpt::LoadedCheckpoint& checkpoint, tensor::ParamSet& params, WeightSet set) {
  std::vector<ckpt::TensorRequest> requests;
  std::vector<std::string> names;
  for (tensor::Param& param : params.params()) {
    names.push_back(param.spec->name);
    if (param.value.defined())
      requests.push_back({param.spec->name, param.value, ckpt::held_part(*param.spec, params.shard())});
  }
  const bool in_place = set == WeightSet::kWeights && params.device().is_cpu();
  if (set == WeightSet::kWeights)
    checkpoint.load(in_place ? requests : std::vector<ckpt::TensorRequest>(), ckpt::LoadedCheckpoint::Part::kWeights,
                    names);
  if (in_place) return;
  load_weights_of(checkpoint, requests, set);
}

// What a tensor rank holds of a matrix in 8 bits. Rows keep the scales that they have in one process.
at::Tensor part_of_int8_rows(const at::Tensor& rows, const spec::ParamSpec& spec, const spec::TensorShard& shard) {
  if (shard.size == 1 || spec.tensor_placement.kind == spec::Placement::Kind::kReplicated) return rows;
  const int dim = spec.tensor_placement.dim;
  std::vector<at::Tensor> parts;
  for (const spec::IndexRange& range : spec::local_ranges(spec, shard))
    parts.push_back(rows.narrow(dim, range.begin, range.count()));
  const int64_t inputs = kernels::num_inputs(rows);
  if (dim == 1) parts.push_back(rows.narrow(1, inputs, rows.size(1) - inputs));
  return at::cat(parts, dim).contiguous();
}

// One parameter after another, so that all of them are never in memory at once in their saved form. `params` have no
// storage.
void load_int8_weights(ckpt::LoadedCheckpoint& checkpoint, tensor::ParamSet& params, WeightSet set) {
  double saved_bytes = 0, bytes = 0, squares = 0, errors = 0;
  for (tensor::Param& param : params.params()) {
    const bool in_int8 = is_matrix_of_a_layer(*param.spec);
    const spec::TensorShard shard = in_int8 ? spec::TensorShard{} : params.shard();
    param.value = at::empty(spec::local_shape(*param.spec, shard), params.compute_type());
    load_weights_of(checkpoint, {{param.spec->name, param.value, ckpt::held_part(*param.spec, shard)}}, set);
    const auto saved_size = static_cast<double>(param.value.element_size());
    saved_bytes += saved_size * static_cast<double>(spec::num_local_elements(*param.spec, params.shard()));
    if (in_int8) {
      const at::Tensor saved = param.value.to(at::kFloat);
      if (!at::isfinite(saved).all().item<bool>())
        throw UserError(concat("'", param.spec->name, "' has weights that are not finite, which 8 bits cannot hold"),
                        ExitCode::kBadData);
      param.value = kernels::to_int8_rows(saved);
      squares += saved.square().sum(at::kDouble).item<double>();
      errors += (saved - kernels::from_int8_rows(param.value)).square().sum(at::kDouble).item<double>();
      param.value = part_of_int8_rows(param.value, *param.spec, params.shard());
    }
    bytes += static_cast<double>(param.value.nbytes());
  }
  log_info("8-bit weights: ", format_bytes(bytes), " instead of ", format_bytes(saved_bytes), "; rounding is ",
           format_printf("%.2f %%", 100 * std::sqrt(errors / std::max(squares, 1e-300))), " of the layers' weights");
}

// As under ZeRO 3 a layer's parameters have no storage of their own. Two sharers are the fewest that there can be.
constexpr spec::Sharing kLayersComeAndGo = {.stage = spec::ZeroStage::kParameters, .num_ranks = 2};

// What is divided only evenly, in words; empty for a vocabulary, of which the last ranks may get fewer rows.
std::string divided_evenly(const std::string& name) {
  if (name.find("query_key_value") != std::string::npos || name.find("key_value") != std::string::npos)
    return "heads of keys and values";
  if (name.find("dense_h_to_4h") != std::string::npos || name.find("dense_4h_to_h") != std::string::npos)
    return "columns of the MLP";
  if (name.find("attention") != std::string::npos) return "heads of attention";
  return "";
}

void check_division(const std::vector<spec::ParamSpec>& params, int64_t ranks) {
  for (const spec::ParamSpec& param : params) {
    const spec::Placement& placement = param.tensor_placement;
    const std::string what = divided_evenly(param.name);
    if (placement.kind == spec::Placement::Kind::kReplicated || what.empty()) continue;
    for (const int64_t segment : placement.segments)
      if (const int64_t units = segment / placement.unit; units % ranks != 0)
        throw UserError(concat("--tensor-model-parallel-size ", ranks, " does not divide the ", units, " ", what,
                               " of the model's layers; use ", plan::divisors_near(ranks, units)),
                        ExitCode::kUsage);
  }
}

void check_device(WeightFormat format, at::Device device) {
  if (device.is_cpu() || format == WeightFormat::kSaved) return;
  throw UserError(concat(format == WeightFormat::kInt8 ? "--int8-weights" : "--stream-layers",
                         " works only on the CPU: leave it out, or give --device cpu"),
                  ExitCode::kUsage);
}

// `refuse` says why the family's models cannot do what they are wanted for, where they cannot.
LoadedModel load(const std::string& load, std::optional<int64_t> step, WeightSet set, WeightFormat format,
                 const dist::Grid& grid, std::string (*refuse)(const models::FamilyRuntime& family)) {
  check_device(format, grid.device);
  const auto entry = store::find_checkpoint(load, step, /*save=*/"");
  ESPALIER_CHECK(entry, "without --save a missing checkpoint is an error of its own");
  ckpt::LoadedCheckpoint checkpoint(entry->folder);
  LoadedModel loaded{.config = families::read_saved_run(checkpoint.manifest(), entry->folder.string()),
                     .step = entry->step,
                     .device = grid.device,
                     .tokenizer = {},
                     .params = {},
                     .layers = {},
                     .model = {},
                     .encoder = {},
                     .text_ends = {},
                     .leader = nullptr};
  if (const std::string why = refuse(models::runtime_of(*loaded.config.family)); !why.empty())
    throw UserError(concat(entry->folder.string(), " holds a ", loaded.config.family->display, ", ", why),
                    ExitCode::kUsage);
  checkpoint.check_extra_files("tokenizer/");
  loaded.tokenizer = text::load_stored_tokenizer(loaded.config.tokenizer, entry->folder / "tokenizer");
  const bool in_int8 = format == WeightFormat::kInt8, is_streamed = format == WeightFormat::kStreamed;
  std::vector<spec::ParamSpec> specs = config::model_spec(loaded.config).params;
  check_division(specs, grid.shape.tensor);
  loaded.params = std::make_unique<tensor::ParamSet>(
      std::move(specs), grid.tensor_shard(), compute_type(checkpoint.manifest().model.compute_type),
      /*with_grad=*/false, is_streamed ? kLayersComeAndGo : spec::Sharing{}, in_int8 ? at::kMeta : grid.device);
  if (set == WeightSet::kEma) store::check_has_ema(checkpoint.manifest(), "--ema");
  if (in_int8)
    load_int8_weights(checkpoint, *loaded.params, set);
  else
    load_weights(checkpoint, *loaded.params, set);
  if (is_streamed) loaded.layers = std::make_unique<StreamedLayers>(std::move(checkpoint), *loaded.params, set);
  return loaded;
}

}  // namespace

// What nn's linear layers multiply with; tables of embeddings are none.
bool is_matrix_of_a_layer(const spec::ParamSpec& spec) {
  if (spec.shape.size() != 2) return false;
  const auto is_of = [&](const char* ending) { return spec.name.ends_with(ending); };
  return is_of("query_key_value.weight") || is_of("query.weight") || is_of("key_value.weight") ||
         is_of("dense.weight") || is_of("dense_h_to_4h.weight") || is_of("dense_4h_to_h.weight");
}

LoadedModel load_model(const std::string& from, std::optional<int64_t> step, WeightSet set, WeightFormat format,
                       const dist::Grid& grid) {
  LoadedModel loaded = load(from, step, set, format, grid, [](const models::FamilyRuntime& family) -> std::string {
    if (family.build_decoder != nullptr || family.masked_logits != nullptr) return "";
    return "which neither continues text nor fills in masked words: nothing can be generated with it";
  });
  const models::FamilyRuntime& family = models::runtime_of(*loaded.config.family);
  if (family.text_ends != nullptr) loaded.text_ends = family.text_ends(*loaded.tokenizer);
  if (family.build_decoder != nullptr)
    loaded.model = family.build_decoder(nn::LayerBuilder{*loaded.params, grid}, loaded.config);
  if (grid.shape.tensor > 1 && loaded.model == nullptr)
    throw UserError(concat(from, " holds a ", loaded.config.family->display,
                           ", which fills in masks in one process: leave out --tensor-model-parallel-size"),
                    ExitCode::kUsage);
  if (!grid.device.is_cpu() && loaded.model == nullptr)
    throw UserError(concat(from, " holds a ", loaded.config.family->display,
                           ", which fills in masks on the CPU: give --device cpu"),
                    ExitCode::kUsage);
  if (loaded.layers != nullptr && (loaded.model == nullptr || !loaded.model->bring_layers(*loaded.layers)))
    throw UserError(concat(from, " holds a ", loaded.config.family->display,
                           ", whose layers cannot be read one after another: leave out --stream-layers"),
                    ExitCode::kUsage);
  return loaded;
}

LoadedModel load_text_encoder(const std::string& from, std::optional<int64_t> step, WeightSet set) {
  LoadedModel loaded = load(from, step, set, WeightFormat::kSaved, dist::single_process(),
                            [](const models::FamilyRuntime& family) -> std::string {
                              if (family.build_text_encoder != nullptr) return "";
                              return "which makes no vectors of texts: give a run of espalier train ict";
                            });
  loaded.encoder = models::runtime_of(*loaded.config.family)
                       .build_text_encoder(nn::LayerBuilder{*loaded.params, dist::single_process()}, loaded.config);
  return loaded;
}

std::unique_ptr<BatchModel> batch_model(const LoadedModel& loaded, const DecoderModelConfig& config) {
  if (loaded.leader != nullptr)
    return std::make_unique<LeadingModel>(*loaded.leader, *loaded.model, loaded.weights(), config);
  ESPALIER_CHECK(loaded.params->shard().size == 1, "one of ", loaded.params->shard().size, " parts of a model alone");
  return std::make_unique<DecoderModel>(*loaded.model, loaded.weights(), config);
}

}  // namespace espalier::infer
