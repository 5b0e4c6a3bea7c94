// espalier detoxify: scores of texts, what of them is kept to train on, and how toxic a model's own texts are.
#include <cstdio>

#include "apps/commands.h"
#include "apps/detoxify/options.h"
#include "apps/print_json.h"
#include "base/format.h"
#include "base/log.h"
#include "base/options.h"
#include "base/output_checks.h"
#include "base/pending_file.h"
#include "eval/detoxify/least_toxic.h"
#include "eval/detoxify/score_texts.h"
#include "eval/detoxify/toxicity_metrics.h"

namespace espalier {
namespace {

using Words = std::vector<std::string>;
using Json = nlohmann::ordered_json;

// What the three commands share: texts in, texts out.
void add_input(OptionTable& table, std::string& input, const std::string& help) {
  table.add("--input", input, help).alias("--data-path").value_name("FILE").required();
}

void check_input_stays(const std::string& input, const std::string& output, Problems& problems) {
  if (is_same_file(input, output)) problems.add("--output ", output, " is the input");
}

int score_main(const Words& arguments) {
  eval::ScoringPlan plan;
  std::string input, output;
  bool json = false;
  OptionTable table(
      "espalier detoxify score",
      "Adds \"score\" to each line of a JSONL file with \"text\". A scorer is any program that reads lines "
      "{\"id\", \"text\"} and answers each with {\"id\", \"score\"}; docs/detoxify.md has some. "
      "If interrupted, the same command resumes.");
  add_input(table, input, "JSONL with text");
  table.add("--output", output, "where to").alias("--out-path").value_name("FILE").default_text("FILE-annotated.jsonl");
  add_scorer_rows(table, plan);
  table.add("--overwrite", plan.overwrite, "replace the file; without it, a file that was begun is continued");
  table.add("--json", json, "what was done as JSON on standard output");
  table.add_without_effect("--total", OptionTable::Takes::kOne, "the lines are counted");
  table.known_elsewhere({"--timeout"}, "--answer-seconds");
  table.known_elsewhere({"--retries"}, "--restarts");
  Problems problems;
  if (!table.parse(arguments, problems)) return 0;
  check_input_stays(input, output, problems);
  problems.raise();
  plan.input = input;
  plan.output = output.empty() ? input + "-annotated.jsonl" : output;
  const eval::ScoringSummary done = eval::score_texts(plan);
  log_info("scored ", format_counted(done.num_texts, "text"), " into ", plan.output.string(), ": ", done.num_blank,
           " blank, ", done.num_without, " without a score",
           done.num_kept > 0 ? concat(", ", done.num_kept, " before") : "",
           done.num_restarts > 0 ? concat(", ", format_counted(done.num_restarts, "restart")) : "");
  if (json)
    print_json(Json({{"texts", done.num_texts},
                     {"kept", done.num_kept},
                     {"blank", done.num_blank},
                     {"without_score", done.num_without},
                     {"restarts", done.num_restarts}}));
  return 0;
}

Json to_json(const eval::Spread& spread) {
  return {{"count", spread.count},
          {"mean", spread.count > 0 ? Json(spread.mean) : Json(nullptr)},
          {"deviation", spread.count > 0 ? Json(spread.deviation) : Json(nullptr)}};
}

std::string shown(const eval::Spread& spread) {
  return spread.count > 0 ? format_printf("%.6f +- %.6f", spread.mean, spread.deviation) : "-";
}

void print_row(const std::string& name, const eval::Spread& spread, const std::string& more = "") {
  std::printf("%-24s %10s  %s%s\n", name.c_str(), format_count(spread.count).c_str(), shown(spread).c_str(),
              more.c_str());
}

int filter_main(const Words& arguments) {
  eval::FilterPlan plan;
  std::string input, output;
  bool json = false;
  OptionTable table("espalier detoxify filter",
                    "Keeps the least toxic of scored texts, shuffled, and shows the scores before and after.");
  add_input(table, input, "JSONL with score, from espalier detoxify score");
  table.add("--output", output, "where to").alias("--out-path").value_name("FILE").required();
  add_filter_rows(table, plan);
  table.add("--overwrite", plan.overwrite, "replace the file");
  table.add("--json", json, "the scores before and after as JSON");
  for (const char* name : {"--prompt-path", "--workers"})
    table.add_without_effect(name, OptionTable::Takes::kOne, "the script does not use it either");
  Problems problems;
  if (!table.parse(arguments, problems)) return 0;
  check_input_stays(input, output, problems);
  problems.raise();
  clean_up_when_interrupted();
  plan.input = input;
  plan.output = output;
  const eval::FilterSummary done = eval::keep_least_toxic(plan);
  if (json) {
    print_json(Json({{"lines", done.num_lines},
                     {"all", to_json(done.all)},
                     {"toxic", to_json(done.toxic)},
                     {"nontoxic", to_json(done.nontoxic)},
                     {"kept", to_json(done.kept)},
                     {"lowest_kept", done.lowest_kept},
                     {"highest_kept", done.highest_kept}}));
    return 0;
  }
  std::printf("%s lines\n", format_count(done.num_lines).c_str());
  print_row("with a score", done.all);
  print_row("above 0.5", done.toxic);
  print_row("up to 0.5", done.nontoxic);
  print_row("kept", done.kept,
            concat(", ", format_fixed(done.lowest_kept, 6), " to ", format_fixed(done.highest_kept, 6)));
  return 0;
}

Json to_json(const eval::PromptGroup& group) {
  const bool some = group.maximum.count > 0;
  return {{"prompts", group.maximum.count},
          {"expected_maximum_toxicity", some ? Json(group.maximum.mean) : Json(nullptr)},
          {"deviation", some ? Json(group.maximum.deviation) : Json(nullptr)},
          {"toxicity_probability", some ? Json(group.probability) : Json(nullptr)}};
}

int metrics_main(const Words& arguments) {
  eval::MetricsPlan plan;
  std::string input, prompts;
  bool json = false;
  OptionTable table("espalier detoxify metrics",
                    "Expected maximum toxicity and toxicity probability of a model on RealToxicityPrompts, from scored "
                    "continuations of its prompts.");
  add_input(table, input, "JSONL with score: the continuations of each prompt after one another");
  table.add("--prompts", prompts, "the prompts, a line each; prompt.toxicity says which are toxic")
      .alias("--prompt-path")
      .value_name("FILE")
      .required();
  table.add("--samples-per-prompt", plan.texts_of_prompt, "continuations of each prompt").minimum(1);
  add_attribute(table, plan.attribute);
  table.add("--json", json, "the same as JSON");
  Problems problems;
  if (!table.parse(arguments, problems)) return 0;
  problems.raise();
  plan.input = input;
  plan.prompts = prompts;
  const eval::ToxicityMetrics found = eval::measure_toxicity(plan);
  const std::pair<const char*, const eval::PromptGroup*> groups[] = {
      {"all", &found.all}, {"toxic", &found.toxic}, {"nontoxic", &found.nontoxic}};
  if (found.num_silent > 0)
    log_warning(format_counted(found.num_silent, "prompt"),
                " without a scored continuation count as -1 in the expected maximum, as upstream");
  if (json) {
    Json result = {{"texts", found.num_texts}, {"without_score", found.num_without}};
    for (const auto& [name, spread] : found.averages) result["averages"][name] = to_json(spread);
    for (const auto& [name, group] : groups) result["prompts"][name] = to_json(*group);
    print_json(result);
    return 0;
  }
  std::printf("%s texts, %s of them without a score\n", format_count(found.num_texts).c_str(),
              format_count(found.num_without).c_str());
  for (const auto& [name, spread] : found.averages) print_row("average " + name, spread);
  std::printf("%-10s %10s  %-24s %s\n", "prompts", "", "expected max. toxicity", "toxicity probability");
  for (const auto& [name, group] : groups)
    std::printf("%-10s %10s  %-24s %s\n", name, format_count(group->maximum.count).c_str(),
                shown(group->maximum).c_str(),
                group->maximum.count > 0 ? format_fixed(group->probability, 6).c_str() : "-");
  return 0;
}

}  // namespace

const std::vector<Command>& detoxify_commands() {
  static const std::vector<Command> list = {
      {"run", "the whole of a recipe: texts, scores, training, toxicity before and after", detoxify_run_main},
      {"score", "add scores to texts: detoxify score --input F --scorer COMMAND", score_main},
      {"filter", "keep the least toxic of scored texts: detoxify filter --input F --output G", filter_main},
      {"metrics", "RealToxicityPrompts: detoxify metrics --input F --prompts P", metrics_main},
  };
  return list;
}

int detoxify_main(const Words& arguments) {
  return run_subcommand("espalier detoxify", detoxify_commands(), arguments);
}

}  // namespace espalier
