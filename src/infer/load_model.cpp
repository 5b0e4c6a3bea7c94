#include "infer/load_model.h"

#include <ATen/ATen.h>

#include <filesystem>

#include "base/error.h"
#include "ckpt/loader.h"
#include "convert/model_config.h"
#include "store/run_folder.h"

namespace espalier::infer {
namespace {

at::ScalarType compute_type(const std::string& name) {
  if (name == "fp32") return at::kFloat;
  if (name == "bf16") return at::kBFloat16;
  if (name == "fp16") return at::kHalf;
  throw UserError(concat("the checkpoint's compute type is '", name, "'; this program knows fp32, bf16 and fp16"),
                  ExitCode::kBadData);
}

// The tokenizer's files travel with the checkpoint under their usual names.
std::unique_ptr<text::Tokenizer> stored_tokenizer(const plan::TokenizerConfig& config,
                                                  const std::filesystem::path& folder) {
  return text::load_tokenizer(text::moved_to(text::tokenizer_options_of(config), folder));
}

}  // namespace

LoadedModel load_model(const std::string& load, std::optional<int64_t> step) {
  const auto entry = store::find_checkpoint(load, step, /*save=*/"");
  ESPALIER_CHECK(entry, "without --save a missing checkpoint is an error of its own");
  ckpt::LoadedCheckpoint checkpoint(entry->folder);
  LoadedModel loaded{.config = convert::stored_config(checkpoint.manifest(), entry->folder),
                     .step = entry->step,
                     .tokenizer = {},
                     .params = {},
                     .model = {}};
  checkpoint.check_extra_files("tokenizer/");
  loaded.tokenizer = stored_tokenizer(loaded.config.tokenizer, entry->folder / "tokenizer");
  const spec::GptConfig& model = loaded.config.model;
  loaded.params = std::make_unique<tensor::ParamSet>(spec::gpt_params(model), spec::TensorShard{},
                                                     compute_type(checkpoint.manifest().model.compute_type),
                                                     /*with_grad=*/false);
  std::vector<ckpt::TensorRequest> requests;
  for (tensor::Param& param : loaded.params->params()) requests.push_back({param.spec->name, param.value});
  checkpoint.load(requests, ckpt::LoadedCheckpoint::Part::kWeights);
  loaded.model = std::make_unique<models::GptModel>(nn::LayerBuilder{*loaded.params, dist::single_process()}, model,
                                                    models::GptModel::Options{});
  return loaded;
}

}  // namespace espalier::infer
