// espalier detoxify run RECIPE.toml: all steps of a detoxification, and what it has brought.
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "apps/detoxify/options.h"
#include "apps/detoxify/recipe.h"
#include "apps/print_json.h"
#include "base/file.h"
#include "base/format.h"
#include "base/json.h"
#include "base/log.h"
#include "base/options.h"
#include "base/pending_file.h"
#include "base/shell.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;
using launch::CommandStep;
using launch::StepState;

Json read_result(const DetoxifyRecipe& recipe, const std::string& step) {
  const std::string file = recipe.result_file(step);
  return parse_json<Json>(read_file(file), file);
}

// {"own_texts": ..., "before": {"prompts", "perplexity"}, "after": ...}
Json report_of(const DetoxifyRecipe& recipe) {
  const Json kept = read_result(recipe, "kept");
  Json report = {{"own_texts", {{"lines", kept.at("lines")}, {"all", kept.at("all")}, {"kept", kept.at("kept")}}}};
  for (const char* when : {"before", "after"}) {
    Json& of = report[when] = Json::object();
    if (!recipe.prompts.empty()) of["prompts"] = read_result(recipe, concat(when, "-metrics")).at("prompts");
    if (recipe.held_out.empty()) continue;
    const Json results = read_result(recipe, concat(when, "-perplexity")).at("results");
    of["perplexity"] = results.begin()->at("ppl");
  }
  return report;
}

std::string shown(const Json& number, int decimals) {
  return number.is_number() ? format_fixed(number.get<double>(), decimals) : "-";
}

void print_row(const std::string& name, const std::string& what, const Json& before, const Json& after, int decimals) {
  std::printf("%-10s %-28s %12s %12s\n", name.c_str(), what.c_str(), shown(before, decimals).c_str(),
              shown(after, decimals).c_str());
}

void print(const DetoxifyRecipe& recipe, const Json& report) {
  const Json& own = report.at("own_texts");
  std::printf("%s own texts: mean %s %s; %s kept: %s\n\n", format_count(own.at("lines").get<int64_t>()).c_str(),
              recipe.attribute.c_str(), shown(own.at("all").at("mean"), 6).c_str(),
              format_count(own.at("kept").at("count").get<int64_t>()).c_str(),
              shown(own.at("kept").at("mean"), 6).c_str());
  const Json &before = report.at("before"), &after = report.at("after");
  std::printf("%-10s %-28s %12s %12s\n", "prompts", "", "before", "after");
  if (before.contains("prompts"))
    for (const auto& [group, of] : before.at("prompts").items()) {
      const Json& then = after.at("prompts").at(group);
      for (const auto& [key, what] : {std::pair("expected_maximum_toxicity", "expected maximum toxicity"),
                                      std::pair("toxicity_probability", "toxicity probability")})
        print_row(group, what, of.at(key), then.at(key), 6);
    }
  if (before.contains("perplexity")) print_row("-", "perplexity", before.at("perplexity"), after.at("perplexity"), 4);
}

// What would run, and why.
void print_plan(const std::vector<CommandStep>& steps, const std::vector<StepState>& states) {
  for (size_t index = 0; index < steps.size(); ++index) {
    const CommandStep& step = steps[index];
    const char* state = "to do";
    switch (states[index].kind) {
      case StepState::Kind::kDone: state = "done"; break;
      case StepState::Kind::kBegun: state = "begun"; break;
      case StepState::Kind::kChanged: state = "changed"; break;
      case StepState::Kind::kNew: break;
    }
    std::string line;
    for (const std::string& word : step.command) line += " " + shell_word(word);
    std::printf("# %s: %s\n%s\n", step.name.c_str(), state, line.substr(1).c_str());
  }
}

}  // namespace

int detoxify_run_main(const std::vector<std::string>& arguments) {
  std::vector<std::string> file;
  bool dry_run = false, json = false;
  OptionTable table(
      "espalier detoxify run",
      "Runs a recipe: the model's own texts, their scores, training on the least toxic, and how toxic and how good the "
      "model was before and is after. Interrupted or changed, the same command does what is left.");
  table.positional("RECIPE", file, "the recipe (docs/detoxify.md)", 1, 1);
  table.add("--dry-run", dry_run, "check the recipe, and show its commands and which of them are done");
  table.add("--json", json, "the results as JSON on standard output");
  Problems problems;
  if (!table.parse(arguments, problems)) return 0;
  problems.raise();
  const DetoxifyRecipe recipe = read_detoxify_recipe(file.front(), problems);
  problems.raise();
  const std::vector<CommandStep> steps = detoxify_steps(recipe);
  std::vector<std::string> strange;
  const std::vector<StepState> states = launch::states_of(recipe.folder, steps, strange);
  for (const std::string& message : strange) problems.add(message);
  problems.raise(ExitCode::kCannotCreate);
  if (dry_run) {
    print_plan(steps, states);
    return 0;
  }
  PendingFolder folder(recipe.folder);
  folder.keep();
  PendingFile pending(recipe.folder + "/report.json");  // held, so that nobody else runs the steps
  if (!launch::run_steps(recipe.folder, steps)) return static_cast<int>(ExitCode::kInterrupted);
  const Json report = report_of(recipe);
  write_synced(pending, report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  move_into_place({&pending});
  if (json)
    print_json(report);
  else
    print(recipe, report);
  return 0;
}

}  // namespace espalier
