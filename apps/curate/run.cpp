// espalier curate RECIPE.toml: sources, steps and outputs of a recipe; and what became of a document.
#include <cstdio>

#include "apps/curate/commands.h"
#include "base/file.h"
#include "base/format.h"
#include "base/json.h"
#include "base/log.h"
#include "base/options.h"
#include "base/output_checks.h"
#include "base/pending_tree.h"
#include "curate/fates.h"
#include "curate/mix.h"
#include "curate/source_check.h"

namespace espalier {
namespace {

struct RecipeRequest {
  std::vector<std::string> recipe;
  std::string html;
  bool dry_run = false, overwrite = false, json = false;
  int64_t sample = 10000;
  std::optional<int64_t> workers;
};

// Where --html and --json ask for it.
void give_report(const RecipeRequest& request, const nlohmann::ordered_json& report) {
  if (!request.html.empty()) write_file_atomically(request.html, curate::report_as_html(report));
  if (request.json) std::puts(report.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
}

// Of a dry run: where the values of each measure are, and what its threshold drops.
void say_measures(curate::StepTally tally) {
  for (curate::MeasureTally& measure : tally.measures) {
    std::string line = concat("    ", measure.name, ": ");
    for (const int percent : {5, 25, 50, 75, 95})
      line += format_printf("%s%d %% %.4g", percent == 5 ? "" : ", ", percent, measure.percentile(percent / 100.0));
    if (measure.threshold)
      line +=
          format_printf("; %s %.4g: %.1f %%", measure.is_least ? "below" : "above", *measure.threshold,
                        100.0 * static_cast<double>(measure.num_beyond()) / static_cast<double>(measure.values.size()));
    log_info(line);
  }
}

void say_result(const curate::Recipe& recipe, const curate::MixResult& mix, const std::vector<std::string>& names,
                bool dry_run) {
  log_info(dry_run ? "of the first " : "", format_count(mix.run.input.num_records), " records, ",
           format_count(mix.run.input.num_documents), " were documents, in ", format_duration(mix.run.seconds));
  warn_of_input(mix.run.input);
  for (size_t index = 0; index < names.size(); ++index) {
    const curate::StepTally& tally = mix.run.steps[index];
    std::string reasons;
    for (const auto& [reason, count] : tally.dropped)
      reasons += concat(reasons.empty() ? ": " : ", ", reason, " ", format_count(count));
    log_info("  ", names[index], ": ", format_count(tally.num_in), " in, ", format_count(tally.num_out), " out, ",
             format_count(tally.num_changed), " changed", reasons.empty() ? "" : "; dropped", reasons);
    say_measures(tally);
  }
  for (const curate::GroupTally& group : mix.groups)
    log_info(dry_run ? "  would write " : "  wrote ", group.name, ": ", format_count(group.num_documents),
             " documents, ", format_bytes(static_cast<double>(group.bytes)),
             group.num_tokens < 0 ? "" : concat(", ", format_count(group.num_tokens), " tokens"));
  if (!dry_run) log_info("the report is ", recipe.output.folder, "/report.md, as a page report.html");
}

}  // namespace

int curate_run_main(const std::vector<std::string>& arguments) {
  RecipeRequest request;
  OptionTable table("espalier curate run", "Runs a recipe: sources, steps and outputs in one TOML file.");
  table.positional("RECIPE", request.recipe, "the recipe (docs/curation.md)", 1, 1);
  table.add("--dry-run", request.dry_run,
            "write no output: what the recipe would do with the first records, "
            "and percentiles of what its steps measure");
  table.add("--sample", request.sample, "records that --dry-run reads").minimum(1);
  table.add("--workers", request.workers, "threads, instead of the recipe's").minimum(1).maximum(4096);
  table.add("--html", request.html, "the report as one HTML file, besides the one in the folder").value_name("FILE");
  table.add("--overwrite", request.overwrite, "start afresh, in place of a finished curation or other work");
  table.add("--json", request.json, "the report as JSON on standard output");
  Problems problems;
  if (!table.parse(arguments, problems)) return 0;
  problems.raise();
  curate::Recipe recipe = curate::read_recipe(request.recipe.front(), problems);
  if (!request.dry_run && !request.overwrite && problems.empty() && curate::is_finished(recipe)) {
    log_info(recipe.output.folder, " holds what this recipe makes of these inputs; --overwrite makes it again");
    const std::string file = recipe.output.folder + "/report.json";
    give_report(request, parse_json<nlohmann::ordered_json>(read_file(file), file));
    return 0;
  }
  if (const std::string other = describe_other_file(request.html, "<!DOCTYPE html", "a page of HTML"); !other.empty())
    problems.add("--html: ", other);
  if (!request.dry_run && problems.empty()) check_folder(recipe, request.overwrite, problems);
  problems.raise();
  curate::check_sources(recipe.sources, problems);
  problems.raise(ExitCode::kBadData);

  clean_up_when_interrupted(kResumes);
  if (request.workers) recipe.workers = *request.workers;
  std::vector<std::string> names;
  for (const curate::PlannedStep& step : recipe.steps) names.push_back(step.name);
  const curate::MixResult mix = request.dry_run ? try_mix(recipe, request.sample) : make_mix(recipe, request.overwrite);
  if (mix.was_finished)
    log_info("other processes have finished ", recipe.output.folder);
  else
    say_result(recipe, mix, names, request.dry_run);
  give_report(request, mix.report);
  return 0;
}

int curate_why_main(const std::vector<std::string>& arguments) {
  std::vector<std::string> folder;
  std::string document;
  OptionTable table("espalier curate why", "Shows what happened to one document of a finished curation.");
  table.positional("FOLDER", folder, "the folder of the recipe's output", 1, 1);
  table.add("--document", document, "a number as in the report, or FILE:LINE of an input").value_name("X").required();
  if (!table.parse(arguments)) return 0;
  for (const std::string& sentence : curate::explain_fate(folder.front(), document)) std::puts(sentence.c_str());
  return 0;
}

}  // namespace espalier
