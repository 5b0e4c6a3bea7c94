#include "apps/checkpoint/megatron.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/options.h"
#include "convert/megatron/export.h"
#include "convert/megatron/import.h"

namespace espalier {
namespace {

using Words = std::vector<std::string>;
using Json = nlohmann::ordered_json;

constexpr size_t kShownDifferences = 20;

const char* name_of(convert::MegatronFormat format) {
  switch (format) {
    case convert::MegatronFormat::kMegatron: return "Megatron";
    case convert::MegatronFormat::kDeepSpeed: return "DeepSpeed";
    case convert::MegatronFormat::kUniversal: return "universal";
  }
  return "";
}

std::string line_of(const convert::CopyDifference& difference) {
  return concat(difference.name, ": ", difference.other, " differs from ", difference.first, " in ",
                format_count(difference.num_different), " of ", format_count(difference.num_elements),
                " elements, largest difference ", format_printf("%.6g", difference.largest_difference));
}

Json to_json(const convert::MegatronImportReport& report) {
  Json differences = Json::array();
  for (const convert::CopyDifference& difference : report.differences)
    differences.push_back({{"name", difference.name},
                           {"first", difference.first},
                           {"other", difference.other},
                           {"num_different", difference.num_different},
                           {"largest_difference", difference.largest_difference}});
  return {{"family", report.family},
          {"format", name_of(report.files.format)},
          {"tensor", report.files.tensor},
          {"pipeline", report.files.pipeline},
          {"data", report.files.data},
          {"folder", report.step_folder.string()},
          {"step", report.step},
          {"parameters", report.num_parameters},
          {"tensors", report.num_tensors},
          {"bytes", report.num_bytes},
          {"optimizer", report.has_optimizer},
          {"copies_compared", report.num_compared_copies},
          {"differences", differences},
          {"remarks", report.remarks}};
}

void print(const convert::MegatronImportReport& report, bool average) {
  std::printf("%s checkpoint %s: tensor-parallel %lld, pipeline-parallel %lld, data-parallel %lld\n",
              name_of(report.files.format), report.files.folder.c_str(), static_cast<long long>(report.files.tensor),
              static_cast<long long>(report.files.pipeline), static_cast<long long>(report.files.data));
  std::printf("%s: %s, step %s, %s parameters, %s tensors%s, %s\n", report.step_folder.c_str(), report.family.c_str(),
              format_count(report.step).c_str(), format_count(report.num_parameters).c_str(),
              format_count(report.num_tensors).c_str(), report.has_optimizer ? " with optimizer state" : "",
              format_bytes(static_cast<double>(report.num_bytes)).c_str());
  if (report.differences.empty()) {
    std::printf("%s copies of tensors that several ranks hold are equal\n",
                format_count(report.num_compared_copies).c_str());
  } else {
    std::printf("%s of %s copies of tensors that several ranks hold differ; %s:\n",
                format_count(static_cast<int64_t>(report.differences.size())).c_str(),
                format_count(report.num_compared_copies).c_str(),
                average ? "the mean was used" : "the first rank's was used (--replicas mean uses the mean)");
    for (size_t at = 0; at < std::min(kShownDifferences, report.differences.size()); ++at)
      std::printf("  %s\n", line_of(report.differences[at]).c_str());
    if (report.differences.size() > kShownDifferences)
      std::printf("  and %zu more, with smaller differences (--json has all)\n",
                  report.differences.size() - kShownDifferences);
  }
  for (const std::string& remark : report.remarks) std::printf("note: %s\n", remark.c_str());
}

}  // namespace

int import_megatron_main(const Words& arguments) {
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  enum class Replicas { kFirst, kMean };
  Replicas replicas = Replicas::kFirst;
  std::string input, save;
  convert::MegatronImport request;
  bool weights_only = false, json = false;
  OptionTable table(
      "espalier checkpoint import-megatron",
      "Makes a checkpoint from one of Megatron-LM (iter_*), Megatron-DeepSpeed (global_step*) or DeepSpeed's "
      "universal format, optimizer and position of the run included. Options of train after -- "
      "replace the arguments that the checkpoint keeps.");
  table.add("--input", input, "that run's --save folder, or the folder of one checkpoint").required().value_name("DIR");
  table.add("--save", save, "run folder in which to write step_N").required().value_name("DIR");
  table.known_elsewhere({"--load", "--load-dir", "--checkpoint", "--ckpt"}, "--input");
  table.known_elsewhere({"--output", "--save-dir", "--output-dir"}, "--save");
  table.add("--ckpt-step", request.step, "this step of --input; by default the newest").minimum(0);
  table.add("--no-load-optim", weights_only, "weights only");
  table.add_choice("--replicas", replicas, {{"first", Replicas::kFirst}, {"mean", Replicas::kMean}},
                   "which copy to use of a tensor that several ranks hold and whose copies differ");
  table.add("--json", json, "one JSON object: what was read and written, every difference");
  if (!table.parse({arguments.begin(), dashes})) return 0;
  if (dashes != arguments.end()) request.train_options.assign(dashes + 1, arguments.end());
  request.input = input, request.save = save;
  request.with_optimizer = !weights_only;
  request.average_copies = replicas == Replicas::kMean;
  const convert::MegatronImportReport report = convert::import_megatron(request);
  if (json)
    std::printf("%s\n", to_json(report).dump().c_str());
  else
    print(report, request.average_copies);
  return 0;
}

int export_megatron_main(const Words& arguments) {
  using convert::MegatronFormat;
  std::string load, output;
  convert::MegatronExport request;
  bool weights_only = false;
  OptionTable table("espalier checkpoint export-megatron",
                    "Writes a checkpoint as Megatron-LM or Megatron-DeepSpeed would, for any layout. They load it with "
                    "--no-load-rng.");
  table.add("--load", load, "run folder (newest complete step) or step folder").required().value_name("DIR");
  table.add("--ckpt-step", request.step, "this step of a run folder").minimum(0);
  table.add("--output", output, "where to write iter_N or global_stepN").required().value_name("DIR");
  table.known_elsewhere({"--input", "--load-dir", "--checkpoint", "--ckpt"}, "--load");
  table.known_elsewhere({"--save", "--save-dir", "--output-dir"}, "--output");
  table.known_elsewhere({"--target-tensor-parallel-size", "--tp", "--tp-size"}, "--tensor-model-parallel-size");
  table.known_elsewhere({"--target-pipeline-parallel-size", "--pp", "--pp-size"}, "--pipeline-model-parallel-size");
  table.add_choice("--format", request.format,
                   {{"megatron", MegatronFormat::kMegatron}, {"deepspeed", MegatronFormat::kDeepSpeed}},
                   "files of plain Megatron, or of DeepSpeed's pipeline engine");
  table.add("--tensor-model-parallel-size", request.tensor, "tensor ranks").minimum(1).maximum(1e5);
  table.add("--pipeline-model-parallel-size", request.pipeline, "pipeline stages, each with the same number of layers")
      .minimum(1)
      .maximum(1e5);
  table.add("--data-parallel-size", request.data, "parts of the optimizer's state in DeepSpeed's files")
      .minimum(1)
      .maximum(1e5);
  table.add("--no-save-optim", weights_only, "weights only");
  bool json = false;
  table.add("--json", json, "one JSON object: what was written");
  if (!table.parse(arguments)) return 0;
  request.load = load, request.output = output;
  request.with_optimizer = !weights_only;
  const convert::MegatronExportReport report = convert::export_megatron(request);
  if (json) {
    const nlohmann::ordered_json written = {{"folder", report.folder.string()},
                                            {"step", report.step},
                                            {"num_files", report.num_files},
                                            {"bytes", report.num_bytes},
                                            {"has_optimizer", report.has_optimizer}};
    std::printf("%s\n", written.dump().c_str());
    return 0;
  }
  std::printf("%s: step %s, %s files%s, %s\n", report.folder.c_str(), format_count(report.step).c_str(),
              format_count(report.num_files).c_str(), report.has_optimizer ? " with optimizer state" : "",
              format_bytes(static_cast<double>(report.num_bytes)).c_str());
  return 0;
}

}  // namespace espalier
