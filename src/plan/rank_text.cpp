// What `espalier plan --rank` prints.
#include "base/format.h"
#include "plan/run_plan.h"
#include "plan/stage_params.h"
#include "plan/zero_ranges.h"

namespace espalier::plan {
namespace {

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape) text += (text.empty() ? "" : " x ") + std::to_string(size);
  return text;
}

// "0-511, 1024-1535" of a parameter's local elements, numbered from 0; a few runs, then how many more.
std::string owned_text(const std::vector<ZeroPiece>& pieces, int64_t param) {
  constexpr int64_t kShown = 2;
  std::string text;
  int64_t runs = 0;
  for (const ZeroPiece& piece : pieces) {
    if (piece.param != param || ++runs > kShown) continue;
    text += concat(text.empty() ? "" : ", ", piece.param_begin, "-", piece.param_begin + piece.count - 1);
  }
  if (runs > kShown) text += concat(" and ", runs - kShown, " more");
  return text.empty() ? "none" : text;
}

}  // namespace

std::string rank_text(const RunPlan& plan, int64_t rank) {
  const spec::GridShape& grid = plan.run.grid;
  if (rank >= grid.num_ranks())
    throw UserError(
        concat("--rank ", rank, ": the ranks of ", grid.num_ranks(), " processes are 0 to ", grid.num_ranks() - 1),
        ExitCode::kUsage);
  const spec::GridPosition place = spec::position_of(grid, rank);
  const spec::TensorShard shard{grid.tensor, place.tensor};
  const std::vector<spec::ParamSpec> specs = stage_params(plan.run.model.params, plan.partition, place.pipeline);
  const int64_t sharers = grid.data * grid.context;
  const ZeroShape shape{.stage = static_cast<ZeroStage>(sharers > 1 ? plan.run.zero_stage : 0), .num_ranks = sharers};
  const std::vector<ZeroPiece> pieces =
      zero_pieces(spec::flat_layout(specs, shard, sharers), shape, place.data * grid.context + place.context);

  std::vector<std::vector<std::string>> rows = {{"parameter", "whole", "here", "updates elements"}};
  int64_t count = 0, owned = 0;
  for (size_t param = 0; param < specs.size(); ++param) {
    const spec::ParamSpec& spec = specs[param];
    rows.push_back({spec.name + (spec.is_copy ? " (copy)" : ""), shape_text(spec.shape),
                    shape_text(spec::local_shape(spec, shard)), owned_text(pieces, static_cast<int64_t>(param))});
    count += spec::num_local_elements(spec, shard);
  }
  for (const ZeroPiece& piece : pieces) owned += piece.count;
  return concat("rank         ", rank, " of ", grid.num_ranks(), ": tensor ", place.tensor, ", context ", place.context,
                ", data ", place.data, ", pipeline ", place.pipeline, "\n", "parameters   ", format_count(count),
                ", of which it updates ", format_count(owned), "\n\n", table_text(rows, 4), "\nschedule     ",
                to_string(plan.tables[static_cast<size_t>(place.pipeline)], plan.partition.num_chunks), "\n");
}

}  // namespace espalier::plan
