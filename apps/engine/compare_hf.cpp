#include "apps/engine/compare_hf.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "base/options.h"
#include "infer/compare_logits.h"
#include "store/weight_folder.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;

models::NamedTensors read_inputs(const fs::path& file) {
  models::NamedTensors inputs;
  for (const auto& [name, view] : store::open_weights(file)) {
    if (view.dtype != store::DType::kInt64)
      throw UserError(concat("--inputs ", file.string(), ": '", name, "': expected I64, found ", to_string(view.dtype)),
                      ExitCode::kBadData);
    inputs[name] = at::empty(view.shape, at::kLong);
    store::TensorReader(view).read(inputs[name].data_ptr());
  }
  return inputs;
}

void write_outputs(models::NamedTensors outputs, const fs::path& folder) {
  fs::create_directories(folder);
  std::vector<std::pair<std::string, store::TensorSource>> sources;
  for (auto& [name, tensor] : outputs) {
    tensor = tensor.contiguous();
    sources.emplace_back(name, store::source_of(store::DType::kFloat32, tensor.sizes().vec(), tensor.data_ptr()));
  }
  store::write_weights(folder, sources, int64_t{1} << 40);
}

void say_comparison(const infer::LogitsComparison& found) {
  const auto figure = [](double value) { return format_printf("%.3g", value); };
  const std::string figures = concat("largest difference ", figure(found.largest_difference), " of logits up to ",
                                     figure(found.largest_logit), ", ", found.num_tokens, " tokens");
  if (!found.equal())
    throw UserError(concat("the logits differ: ", figures, ", expected at most ", figure(found.tolerance)),
                    ExitCode::kBadData);
  log_info("the logits are equal: ", figures);
  if (found.changed_by)
    log_warning("the options after -- change the checkpoint's logits by up to ", figure(*found.changed_by));
  if (!found.not_reached.empty())
    log_info("these tokens do not reach ", join(found.not_reached, " and "), ": that was not compared");
}

}  // namespace

int compare_hf(const std::vector<std::string>& arguments) {
  std::string step, folder, inputs, outputs;
  infer::ComparedModel model;
  OptionTable table("espalier-engine compare-hf", "Compares the logits of a checkpoint and of a Hugging Face folder.");
  table.add("--step", step, "step folder").required();
  table.add("--hf", folder, "Hugging Face folder").required();
  table.add_choice("--conversion", model.conversion,
                   {{"import", infer::Conversion::kImport}, {"export", infer::Conversion::kExport}},
                   "which was made from the other");
  table.add("--ema", model.ema, "the moving average of the weights, from which the folder was made");
  table.add("--inputs", inputs, "ids, and what else the model reads, in a safetensors file: instead of fixed ones");
  table.add("--outputs", outputs, "folder for what the checkpoint computes, in model.safetensors");
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  if (!table.parse({arguments.begin(), dashes})) return 0;
  if (dashes != arguments.end()) model.options.assign(dashes + 1, arguments.end());
  if (!inputs.empty()) model.inputs = read_inputs(inputs);
  const infer::LogitsComparison found = infer::compare_logits(step, folder, model);
  if (!outputs.empty()) write_outputs(found.ours, outputs);
  say_comparison(found);
  return 0;
}

}  // namespace espalier
