#include "plan/time/search.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "plan/memory.h"
#include "plan/run_plan.h"

namespace espalier::plan {
namespace {

constexpr int64_t kMostMicroBatch = 16;
constexpr int64_t kChunks[] = {2, 3, 4, 6, 8};

// Micro-batches, in multiples of the stages, after which a schedule does nothing new.
constexpr int64_t kSteady = 4;

std::vector<int64_t> divisors(int64_t number, int64_t most) {
  std::vector<int64_t> all;
  for (int64_t divisor = 1; divisor <= std::min(number, most); ++divisor)
    if (number % divisor == 0) all.push_back(divisor);
  return all;
}

RunShape with_micro_batches(RunShape run, int64_t count) {
  run.global_batch_size = count * run.micro_batch_size * run.grid.data;
  return run;
}

// Most bytes of a rank, from a step of at most kSteady * stages micro-batches and the batches of the whole one.
double peak_bytes(const RunShape& run, const Partition& partition) {
  const int64_t all = run.num_micro_batches(), few = std::min(all, kSteady * run.grid.pipeline * run.num_chunks);
  const MemoryPlan plan = plan_memory(with_micro_batches(run, few), partition, default_products(run.precision));
  return plan.largest().peak() + static_cast<double>((all - few) * run.micro_batch_size) * run.model.batch_bytes;
}

double step_seconds(const RunShape& run, const StepClock& clock) {
  const int64_t all = run.num_micro_batches(), stages = run.grid.pipeline, few = kSteady * stages;
  const auto at = [&](int64_t count) { return clock.at(count * run.micro_batch_size * run.grid.data).seconds; };
  if (all <= few + stages) return at(all);
  const double first = at(few), second = at(few + stages);
  return first + (second - first) / static_cast<double>(stages) * static_cast<double>(all - few);
}

class Search {
 public:
  Search(const SearchSpace& space, const Machine& machine, size_t most)
      : space_(space), machine_(machine), most_(most) {}

  SearchResult run() {
    std::vector<SearchPoint> grids;
    for (int64_t tensor = 1; tensor <= space_.most_tensor; tensor *= 2) {
      if (space_.num_devices % (tensor * space_.context) != 0) continue;
      for (const int64_t pipeline : divisors(space_.num_devices / (tensor * space_.context), space_.num_layers))
        for (int64_t micro = 1; micro <= kMostMicroBatch; micro *= 2)
          grids.push_back({.tensor = tensor, .pipeline = pipeline, .micro_batch_size = micro});
    }
    int64_t done = 0;
    for (const SearchPoint& grid : grids) {
      try_grid(grid);
      if (space_.on_progress) space_.on_progress(++done, static_cast<int64_t>(grids.size()));
    }
    finish();
    return std::move(result_);
  }

 private:
  // With every schedule.
  void try_grid(const SearchPoint& grid) {
    const int64_t data = space_.num_devices / (grid.tensor * space_.context * grid.pipeline);
    const int64_t at_once = grid.micro_batch_size * data;
    if (space_.global_batch_size % at_once != 0)
      return lose("batch", grid,
                  concat("the batch of ", space_.global_batch_size, " is not a multiple of ", grid.micro_batch_size,
                         " * ", data, " data-parallel ranks"));
    std::string why_not;
    const std::optional<RunShape> made = space_.make_run(grid, why_not);
    if (!made) return lose("options", grid, why_not);
    try_schedules(grid, *made);
  }

  void try_schedules(SearchPoint point, RunShape run) {
    try_recompute(point, run);
    if (point.pipeline == 1) return;
    point.schedule = run.schedule = ScheduleKind::kZeroBubble;
    try_recompute(point, run);
    point.schedule = run.schedule = ScheduleKind::kInterleaved;
    if (!run.partition_method.empty())
      return lose("layers", point, "chunks are equal, and --pp-partition-method says otherwise");
    for (const int64_t chunks : kChunks) {
      if (point.pipeline * chunks > space_.num_layers) continue;
      point.num_chunks = run.num_chunks = chunks;
      if (space_.num_layers % (point.pipeline * chunks) != 0)
        lose(
            "layers", point,
            concat(space_.num_layers, " layers do not divide into ", point.pipeline, " stages of ", chunks, " chunks"));
      else if (run.num_micro_batches() % point.pipeline != 0)
        lose("batch", point,
             concat(run.num_micro_batches(), " micro-batches are not a multiple of ", point.pipeline, " stages"));
      else
        try_recompute(point, run);
    }
  }

  void try_recompute(SearchPoint point, const RunShape& run) {
    const bool fits = try_point(point, run, {});
    point.recompute = true;
    if (fits) return lose("not needed", point, "it fits without recompute, which only takes time");
    try_point(point, run, space_.recompute);
  }

  bool try_point(const SearchPoint& point, RunShape run, const Recompute& recompute) {
    run.recompute = recompute;
    try {
      const Partition partition = make_partition(run);
      const double peak = peak_bytes(run, partition);
      if (peak > space_.memory_bytes) {
        lose("memory", point, concat("needs ", format_bytes(peak)), peak - space_.memory_bytes);
        return false;
      }
      ++result_.num_tried;
      ++result_.num_fitting;
      const StepClock clock(run, machine_);
      found_.push_back({point, run, step_seconds(run, clock), peak});
    } catch (const UserError& error) {
      lose("layers", point, error.what());
      return true;  // recompute would not change it
    }
    return true;
  }

  void lose(const std::string& reason, const SearchPoint& point, const std::string& detail, double excess = 0) {
    ++result_.num_tried;
    SearchLoss& loss = result_.losses[reason];
    if (++loss.count == 1 || (excess > 0 && excess < loss.excess_bytes)) {
      loss.example = point;
      loss.detail = detail;
      loss.excess_bytes = excess;
    }
  }

  void finish() {
    std::stable_sort(found_.begin(), found_.end(), [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
    if (found_.size() > most_) found_.resize(most_);
    for (const Found& found : found_)
      result_.best.push_back({.point = found.point,
                              .data = found.run.grid.data,
                              .step = StepClock(found.run, machine_).at(),
                              .peak_bytes = found.peak});
    std::stable_sort(result_.best.begin(), result_.best.end(),
                     [](const SearchChoice& a, const SearchChoice& b) { return a.step.seconds < b.step.seconds; });
  }

  struct Found {
    SearchPoint point;
    RunShape run;
    double seconds = 0, peak = 0;
  };
  const SearchSpace& space_;
  const Machine& machine_;
  const size_t most_;
  SearchResult result_;
  std::vector<Found> found_;
};

std::string schedule_name(const SearchPoint& point) {
  if (point.pipeline == 1) return "-";
  if (point.schedule == ScheduleKind::kInterleaved)
    return point.num_chunks > 1 ? concat("1F1B x ", point.num_chunks) : to_string(point.schedule);
  return to_string(point.schedule);
}

// What a reason is called where people read it.
const char* reason_text(const std::string& reason) {
  if (reason == "memory") return "do not fit";
  if (reason == "batch") return "do not divide the batch";
  if (reason == "layers") return "do not divide the layers";
  if (reason == "not needed") return "recompute without need";
  return "are not a legal run";
}

}  // namespace

SearchResult search_layouts(const SearchSpace& space, const Machine& machine, size_t most) {
  return Search(space, machine, most).run();
}

std::string to_string(const SearchPoint& point) {
  std::string text =
      concat("tensor ", point.tensor, ", pipeline ", point.pipeline, ", micro-batch ", point.micro_batch_size);
  if (point.pipeline > 1) text += concat(", ", schedule_name(point));
  return text + (point.recompute ? ", recompute" : "");
}

std::string search_text(const SearchResult& result, const SearchSpace& space) {
  std::string text = concat("\nsearch       ", format_count(result.num_tried), " ways to use ",
                            format_count(space.num_devices), " devices of ", format_bytes(space.memory_bytes), ": ",
                            format_count(result.num_fitting), " fit; predicted, not measured\n");
  if (!result.best.empty()) {
    std::vector<std::vector<std::string>> rows = {{"limited by", "schedule", "tensor", "pipeline", "data",
                                                   "micro-batch", "recompute", "step", "TFLOP/s", "memory"}};
    for (const SearchChoice& choice : result.best)
      rows.push_back({choice.step.limit(), schedule_name(choice.point), std::to_string(choice.point.tensor),
                      std::to_string(choice.point.pipeline), std::to_string(choice.data),
                      std::to_string(choice.point.micro_batch_size), choice.point.recompute ? "yes" : "no",
                      format_printf("%.4g s", choice.step.seconds), format_fixed(choice.step.model_flops / 1e12, 1),
                      format_bytes(choice.peak_bytes)});
    text += "\n" + table_text(rows, 2);
  }
  text += "\nRuled out:\n";
  for (const auto& [reason, loss] : result.losses)
    text += concat("  ", format_count(loss.count), " ", reason_text(reason),
                   reason == "memory" ? "; nearest: " : "; such as ", to_string(loss.example), ": ", loss.detail, "\n");
  return text;
}

std::string why_nothing_fits(const SearchResult& result, const SearchSpace& space) {
  const std::string devices = concat(format_count(space.num_devices), space.num_devices == 1 ? " device" : " devices");
  if (const auto memory = result.losses.find("memory"); memory != result.losses.end())
    return concat("nothing fits on ", devices, " of ", format_bytes(space.memory_bytes), ": the nearest (",
                  to_string(memory->second.example), ") needs ",
                  format_bytes(space.memory_bytes + memory->second.excess_bytes), ", ",
                  format_bytes(memory->second.excess_bytes), " too much.");
  const auto most = std::max_element(result.losses.begin(), result.losses.end(),
                                     [](const auto& a, const auto& b) { return a.second.count < b.second.count; });
  if (most == result.losses.end()) return concat("there is no way to divide the run over ", devices, ".");
  return concat("no layout divides the run over ", devices, ": ", format_count(most->second.count), " of ",
                format_count(result.num_tried), " ", reason_text(most->first), " (", to_string(most->second.example),
                ": ", most->second.detail, ").");
}

}  // namespace espalier::plan
