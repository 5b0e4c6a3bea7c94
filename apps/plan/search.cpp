#include "apps/plan/search.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/print_json.h"
#include "base/file.h"
#include "base/format.h"
#include "base/progress.h"
#include "plan/time/search.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kBest = 10;
constexpr int64_t kMostTimesAsMany = 64;  // devices, where nothing fits on those that there are

// Of the grid, after the flags of the run.
std::string grid_flags(const PlanRequest& base, const plan::SearchPoint& point) {
  const config::ParallelConfig& parallel = base.config.parallel;
  std::string flags = concat("--tensor-model-parallel-size ", point.tensor, " --pipeline-model-parallel-size ",
                             point.pipeline, " --micro-batch-size ", point.micro_batch_size);
  if (point.tensor > 1) flags += " --sequence-parallel";
  if (point.tensor == 1 && parallel.sequence_parallel) flags += " --sequence-parallel=false";
  if (parallel.zero_stage == 0) flags += " --zero-stage 1";
  if (parallel.enable_zbh1_pipeline) flags += " --enable-zbh1-pipeline=false";
  return flags;
}

// All of it: what `espalier train` takes to run so.
std::string flags_of(const PlanRequest& base, const plan::SearchPoint& point, int64_t num_layers) {
  const config::TrainingConfig& training = base.config.training;
  std::string flags = grid_flags(base, point);
  if (point.schedule == plan::ScheduleKind::kZeroBubble) flags += " --enable-zbh1-pipeline";
  if (point.num_chunks > 1)
    flags += concat(" --num-layers-per-virtual-pipeline-stage ", num_layers / (point.pipeline * point.num_chunks));
  if (point.recompute && training.recompute.kind == plan::Recompute::Kind::kNone) flags += " --checkpoint-activations";
  if (!point.recompute && training.checkpoint_activations) flags += " --checkpoint-activations=false";
  if (!point.recompute && training.recompute_granularity == config::RecomputeGranularity::kFull)
    flags += " --recompute-granularity none";
  return flags;
}

// What a search is made over, and the flags that say so where it is not what the run's own say.
struct Scale {
  int64_t num_devices = 1, global_batch_size = 1;
  std::string flags;
};

plan::SearchSpace space_of(const std::vector<std::string>& arguments, const PlanRequest& base, const Scale& scale) {
  const config::RunConfig& config = base.config;
  plan::SearchSpace space;
  space.num_devices = scale.num_devices;
  space.most_tensor = std::min(scale.num_devices, static_cast<int64_t>(base.machine->devices_per_node));
  space.context = config.grid.context;
  space.num_layers = config::run_shape(config).model.num_layers();
  space.global_batch_size = scale.global_batch_size;
  space.memory_bytes = static_cast<double>(*base.memory_limit);
  if (config.training.recompute.kind != plan::Recompute::Kind::kNone) space.recompute = config.training.recompute;
  space.make_run = [&arguments, &base, flags = scale.flags](const plan::SearchPoint& point,
                                                            std::string& why_not) -> std::optional<plan::RunShape> {
    PlanRequest trial;
    Problems problems;
    try {
      read_trial(*base.config.family, arguments, grid_flags(base, point) + flags, trial, problems);
      if (problems.empty()) return config::run_shape(trial.config);
      why_not = problems.messages().front();
    } catch (const UserError& error) {
      why_not = error.what();
    }
    return std::nullopt;
  };
  return space;
}

Json point_json(const plan::SearchPoint& point) {
  return {{"tensor", point.tensor},
          {"pipeline", point.pipeline},
          {"micro_batch_size", point.micro_batch_size},
          {"schedule", plan::to_string(point.schedule)},
          {"chunks", point.num_chunks},
          {"recompute", point.recompute}};
}

Json to_json(const plan::SearchResult& result, const PlanRequest& base, int64_t num_layers) {
  Json best = Json::array(), losses = Json::array();
  for (const plan::SearchChoice& choice : result.best) {
    Json row = point_json(choice.point);
    row["data"] = choice.data;
    row["step_seconds"] = choice.step.seconds;
    row["tokens_per_second"] = choice.step.tokens;
    row["model_tflops"] = choice.step.model_flops / 1e12;
    row["limited_by"] = choice.step.limit();
    row["peak_bytes"] = choice.peak_bytes;
    row["flags"] = flags_of(base, choice.point, num_layers);
    best.push_back(std::move(row));
  }
  for (const auto& [reason, loss] : result.losses)
    losses.push_back(
        {{"reason", reason}, {"count", loss.count}, {"example", point_json(loss.example)}, {"detail", loss.detail}});
  return {{"devices", *base.gpus},     {"memory_bytes", *base.memory_limit}, {"machine", base.machine->name},
          {"tried", result.num_tried}, {"fitting", result.num_fitting},      {"best", best},
          {"fell_out", losses}};
}

// The first of those scales on which anything fits.
std::string fit_text(const std::vector<std::string>& arguments, const PlanRequest& request,
                     const std::vector<Scale>& scales) {
  for (const Scale& scale : scales) {
    const plan::SearchSpace space = space_of(arguments, request, scale);
    const plan::SearchResult result = plan::search_layouts(space, *request.machine, 1);
    if (result.best.empty()) continue;
    const plan::SearchChoice& choice = result.best.front();
    return concat(" It would fit with", scale.flags, ": ", to_string(choice.point), ", ",
                  format_bytes(choice.peak_bytes), " of ", format_bytes(space.memory_bytes), ".");
  }
  return concat(" Nothing fits with", scales.back().flags, ", either.");
}

// Twice as many devices, and so on; or, where it is the batch that nothing divides, those next to it.
std::vector<Scale> other_scales(const PlanRequest& request, const plan::SearchResult& result) {
  const int64_t devices = *request.gpus, batch = *request.config.training.global_batch_size;
  std::vector<Scale> scales;
  if (result.losses.contains("memory"))
    for (int64_t factor = 2; factor <= kMostTimesAsMany; factor *= 2)
      scales.push_back(
          {devices * factor, batch,
           request.nodes ? concat(" --nodes ", *request.nodes * factor) : concat(" --gpus ", devices * factor)});
  else
    for (const int64_t other : {batch / devices * devices, (batch / devices + 1) * devices})
      if (other > 0) scales.push_back({devices, other, concat(" --global-batch-size ", other)});
  return scales;
}

}  // namespace

int search_main(const std::vector<std::string>& arguments, const PlanRequest& request) {
  const config::ParallelConfig& parallel = request.config.parallel;
  if (parallel.num_layers_per_virtual_pipeline_stage)
    throw UserError("--search chooses the schedule: leave --num-layers-per-virtual-pipeline-stage out",
                    ExitCode::kUsage);
  if (!request.config.training.activations_checkpoint_method.empty())
    throw UserError(
        "--search chooses the recompute: give --recompute-granularity full instead of --activations-checkpoint-method, "
        "which it may undo",
        ExitCode::kUsage);
  plan::SearchSpace space =
      space_of(arguments, request, {*request.gpus, *request.config.training.global_batch_size, ""});
  Progress progress("search", 0, Progress::Unit::kItems, "layouts");
  space.on_progress = [&progress](int64_t done, int64_t all) {
    progress.set_total(all);
    progress.advance(1);
  };
  const plan::SearchResult result = plan::search_layouts(space, *request.machine, kBest);
  progress.finish();
  if (!request.svg.empty()) write_file_atomically(request.svg, plan::to_svg(result, space));
  if (request.json)
    print_json(to_json(result, request, space.num_layers));
  else
    std::fputs(plan::search_text(result, space).c_str(), stdout);
  if (result.best.empty())
    throw UserError(plan::why_nothing_fits(result, space) + fit_text(arguments, request, other_scales(request, result)),
                    kNothingFits);
  if (!request.json)
    std::printf("\nThe first, after the same flags:\n  %s\n",
                flags_of(request, result.best.front().point, space.num_layers).c_str());
  return 0;
}

}  // namespace espalier
