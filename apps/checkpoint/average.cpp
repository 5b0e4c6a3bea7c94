#include "apps/checkpoint/average.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/print_json.h"
#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "base/options.h"
#include "config/resume.h"
#include "families/registry.h"
#include "store/average.h"
#include "store/manifest.h"
#include "store/run_folder.h"

namespace espalier {
namespace {

// A run folder, or nothing of it.
void check_target(const std::string& save, Problems& problems) {
  std::error_code error;
  if (std::filesystem::exists(save, error) && !std::filesystem::is_empty(save, error))
    problems.add("--save ", save, " exists; give a new folder");
}

std::vector<double> read_weights(const std::vector<std::string>& words, size_t num_folders, Problems& problems) {
  std::vector<double> weights;
  for (const std::string& word : words) {
    char* end = nullptr;
    const double weight = std::strtod(word.c_str(), &end);
    if (word.empty() || *end != 0 || !std::isfinite(weight) || weight <= 0)
      problems.add("--weights: '", word, "' is not a number above 0");
    weights.push_back(weight);
  }
  if (!words.empty() && words.size() != num_folders)
    problems.add("--weights: ", words.size(), " for ", num_folders, " checkpoints; give one for each");
  return weights;
}

// The options of a checkpoint's run, which the model is made from: tensors of the same shapes do not make the same
// model (positions, activation, the multipliers of --mup).
struct SavedModel {
  explicit SavedModel(const std::filesystem::path& step_folder) : folder(step_folder.string()) {
    Problems problems;
    families::read_saved_run(store::read_manifest(step_folder), folder, config, table, problems);
    problems.raise(ExitCode::kBadData);
  }
  std::string folder;
  config::RunConfig config;
  OptionTable table{"espalier train", ""};
};

void check_one_model(const std::vector<std::filesystem::path>& folders) {
  const SavedModel first(folders.front());
  Problems problems;
  for (size_t i = 1; i < folders.size(); ++i) {
    const SavedModel other(folders[i]);
    const bool same_family = other.config.family == first.config.family;
    std::string differences = same_family ? "" : concat("it is a ", other.config.family->display);
    Problems unused;  // of a resume
    if (same_family)
      for (const config::OptionDifference& one :
           config::compare_options(first.table, other.table, {.overrides = {}, .finetune = true}, unused))
        if (one.rule == ResumeRule::kRefused)
          differences += concat(differences.empty() ? "" : ", ", one.key, " is ", one.present, " and not ", one.saved);
    if (!differences.empty())
      problems.add("'", other.folder, "' is another model than '", first.folder, "': ", differences);
  }
  problems.raise(ExitCode::kUsage);
}

}  // namespace

int average_checkpoints_main(const std::vector<std::string>& arguments) {
  std::vector<std::string> folders, weights;
  std::string save;
  bool json = false;
  OptionTable table("espalier checkpoint average",
                    "Writes the mean of the weights of several checkpoints of one model, in fp32 and without optimizer "
                    "state: to evaluate, to export, or to train from with --load and --finetune.");
  table.positional("FOLDER", folders, "run folders (newest complete steps) or step folders", 2, 1000);
  table.add("--save", save, "new run folder; the mean becomes its only step").required();
  table.add("--weights", weights, "the weight of each checkpoint; equal by default").value_name("W");
  table.add("--json", json, "one JSON object: the new folder and what it was made of");
  if (!table.parse(arguments)) return 0;
  Problems problems;
  check_target(save, problems);
  store::AverageRequest request{
      .step_folders = {}, .weights = read_weights(weights, folders.size(), problems), .run_folder = save};
  problems.raise();
  for (const std::string& folder : folders) {
    request.step_folders.push_back(store::find_checkpoint(folder, std::nullopt, /*save=*/"")->folder);
    const std::filesystem::path& found = request.step_folders.back();
    if (std::count(request.step_folders.begin(), request.step_folders.end(), found) > 1)
      throw UserError(concat("'", found.string(),
                             "' is given twice; give each checkpoint once, and --weights where one "
                             "counts for more"),
                      ExitCode::kUsage);
  }
  check_one_model(request.step_folders);
  const std::filesystem::path written = store::write_average(request);
  log_info("saved the mean of ", folders.size(), " checkpoints to ", written.string());
  if (!json) return 0;
  nlohmann::ordered_json object = {{"step_folder", written.string()}};
  for (const auto& folder : request.step_folders) object["of"].push_back(folder.string());
  if (!request.weights.empty()) object["weights"] = request.weights;
  print_json(object);
  return 0;
}

}  // namespace espalier
