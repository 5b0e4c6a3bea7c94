// espalier plan: what a training run needs of every process, before it runs.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "apps/family_command.h"
#include "apps/plan/mixture.h"
#include "apps/plan/request.h"
#include "apps/plan/search.h"
#include "apps/plan/time.h"
#include "apps/train/memory_check.h"
#include "base/file.h"
#include "base/format.h"
#include "base/output_checks.h"
#include "plan/flops.h"
#include "spec/optimizer.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostChoices = 5;

Json stage_json(const plan::RunPlan& plan, int64_t stage) {
  const plan::StageMemory& memory = plan.memory.stages[static_cast<size_t>(stage)];
  const plan::Partition& partition = plan.partition;
  Json layers = Json::array();
  for (int64_t chunk = 0; chunk < partition.num_chunks; ++chunk)
    layers.push_back({partition.layers(stage, chunk).begin, partition.layers(stage, chunk).end});
  return {{"stage", stage},
          {"layers", layers},
          {"embedding", partition.stage_of(0) == stage},
          {"output", partition.stage_of(partition.num_layers + 1) == stage},
          {"parameters", memory.num_parameters},
          {"weights_bytes", memory.weights},
          {"gradients_bytes", memory.gradients},
          {"optimizer_bytes", memory.optimizer},
          {"activations_bytes", memory.activations},
          {"workspace_bytes", memory.workspace},
          {"gathered_bytes", memory.gathered},
          {"batches_bytes", memory.batches},
          {"peak_bytes", memory.peak()},
          {"most_alive", memory.most_alive},
          {"sent_bytes", plan.messages[static_cast<size_t>(stage)].total()},
          {"schedule", plan::to_string(plan.tables[static_cast<size_t>(stage)], partition.num_chunks)}};
}

Json to_json(const plan::RunPlan& plan, std::optional<int64_t> memory_limit) {
  const plan::RunShape& run = plan.run;
  const spec::GridShape& grid = run.grid;
  const double samples = static_cast<double>(run.global_batch_size);
  Json stages = Json::array();
  for (int64_t stage = 0; stage < plan.partition.num_stages; ++stage) stages.push_back(stage_json(plan, stage));
  Json json = {
      {"parameters", plan.num_parameters},
      {"precision", plan::to_string(run.precision)},
      {"processes", grid.num_ranks()},
      {"tensor", grid.tensor},
      {"context", grid.context},
      {"data", grid.data},
      {"pipeline", grid.pipeline},
      {"chunks", plan.partition.num_chunks},
      {"sequence_parallel", run.sequence_parallel},
      {"zero_stage", run.zero_stage},
      {"zero_reason", run.zero_reason},
      {"schedule", plan::to_string(run.schedule)},
      {"micro_batches", plan.num_micro_batches},
      {"bubble", plan.equal_bubble},
      {"bubble_by_flops", plan.simulation.bubble_share},
      {"model_flops_per_step", samples * plan::model_flops(run.model)},
      {"bytes_per_parameter", plan::parameter_bytes(run).total()},
      {"checkpoint_bytes", plan.checkpoint_bytes},
      {"checkpoint_weight_bytes", plan.checkpoint_weight_bytes},
      {"deepspeed_checkpoint_bytes", plan.deepspeed_checkpoint_bytes},
      {"peak_bytes", plan.memory.largest().peak()},
      {"stages", stages},
  };
  if (memory_limit) json["fits"] = plan.memory.largest().peak() <= static_cast<double>(*memory_limit);
  return json;
}

// Copies of the state in the memory of machines, for the process that has the largest.
double largest_copies(const PlanRequest& request, const plan::RunPlan& plan) {
  const spec::GridShape& grid = request.config.grid;
  const int64_t ranks_of_machine =
      request.machine ? static_cast<int64_t>(request.machine->devices_per_node) : grid.num_ranks();
  double largest = 0;
  for (int64_t stage = 0; stage < grid.pipeline; ++stage)
    largest = std::max(largest, copies_in_memory(request.config, plan.memory.stages[static_cast<size_t>(stage)],
                                                 spec::rank_of(grid, {.pipeline = stage}), ranks_of_machine));
  return largest;
}

std::string copies_text(double bytes) {
  return concat("\nCopies of the state (--non-persistent-save-interval): ", format_bytes(bytes),
                " of the machine's memory for the fullest rank, beside what the table counts.\n");
}

// What would fit where this does not.
Json choices_json(const std::vector<FittingChoice>& choices) {
  Json list = Json::array();
  for (const FittingChoice& choice : choices)
    list.push_back({{"flags", choice.flags}, {"peak_bytes", choice.peak_bytes}, {"bubble", choice.bubble}});
  return list;
}

std::string choices_text(const std::vector<FittingChoice>& choices) {
  if (choices.empty()) return "\nNone of the larger layouts tried fits either.\n";
  std::string text = "\nWhat fits, after the same flags:\n";
  for (const FittingChoice& choice : choices)
    text += concat("  ", choice.flags, "   (", format_bytes(choice.peak_bytes), ", bubble ",
                   format_fixed(100 * choice.bubble, 1), " %)\n");
  return text;
}

int plan_family(const config::Family& family, const std::vector<std::string>& words) {
  const std::vector<std::string> arguments(words.begin() + 1, words.end());
  PlanRequest request;
  Problems problems;
  if (!read_plan_request(family, arguments, request, problems)) return 0;
  if (const std::string other = describe_other_file(request.svg, "<svg", "a picture in SVG"); !other.empty())
    problems.add("--svg: ", other);
  problems.raise();
  if (request.search) return search_main(arguments, request);
  const plan::RunPlan plan = plan::plan_run(config::run_shape(request.config));
  const std::optional<int64_t> limit = request.memory_limit;
  const bool fits = !limit || plan.memory.largest().peak() <= static_cast<double>(*limit);
  std::vector<FittingChoice> choices;
  if (!fits) choices = fitting_choices(arguments, request.config, *limit, kMostChoices);
  if (!request.svg.empty()) write_file_atomically(request.svg, plan::to_svg(plan, limit));
  const double copies = largest_copies(request, plan);
  if (request.json) {
    Json json = to_json(plan, limit);
    if (copies > 0) json["copies_bytes"] = copies;
    if (!fits) json["choices_that_fit"] = choices_json(choices);
    if (request.machine) json["time"] = time_json(request, plan.run);
    if (const auto mixture = mixture_of(request.config); !mixture.empty()) json["mixture"] = mixture_json(mixture);
    std::puts(json.dump().c_str());
    return 0;
  }
  if (request.rank) {
    std::fputs(plan::rank_text(plan, *request.rank).c_str(), stdout);
    return 0;
  }
  std::fputs(plan::to_text(plan, limit).c_str(), stdout);
  if (copies > 0) std::fputs(copies_text(copies).c_str(), stdout);
  if (!fits) std::fputs(choices_text(choices).c_str(), stdout);
  if (request.machine) std::fputs(time_page(request, plan.run).c_str(), stdout);
  if (const auto mixture = mixture_of(request.config); !mixture.empty())
    std::fputs(concat("\nData, in samples of ", request.config.data.sequence_length, " tokens:\n",
                      data::mixture_table(mixture), "\n")
                   .c_str(),
               stdout);
  return 0;
}

}  // namespace

int plan_main(const std::vector<std::string>& arguments) {
  return run_with_family("plan", "--gpus N [options of training]", arguments, plan_family);
}

}  // namespace espalier
