// Which layout, micro-batch, schedule and recompute make a step fastest on a given number of devices, among those that
// fit into their memory; and why the others fell out.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plan/run_shape.h"
#include "plan/time/step_time.h"

namespace espalier::plan {

struct SearchPoint {
  int64_t tensor = 1, pipeline = 1, micro_batch_size = 1, num_chunks = 1;
  ScheduleKind schedule = ScheduleKind::k1F1B;
  bool recompute = false;
  bool operator==(const SearchPoint&) const = default;
};

struct SearchSpace {
  int64_t num_devices = 1;
  int64_t most_tensor = 8;  // devices of a node: tensor ranks talk too much for a network
  int64_t context = 1;
  int64_t num_layers = 1;
  int64_t global_batch_size = 1;
  double memory_bytes = 0;                                                     // of a device
  Recompute recompute = {.kind = Recompute::Kind::kUniform, .num_layers = 1};  // where there is any
  // The run with this tensor and pipeline size and micro-batch, or nothing and why; schedule, chunks and recompute
  // are set by the search.
  std::function<std::optional<RunShape>(const SearchPoint& point, std::string& why_not)> make_run;
  std::function<void(int64_t done, int64_t all)> on_progress;  // may be null
};

struct SearchChoice {
  SearchPoint point;
  int64_t data = 1;
  StepTime step;
  double peak_bytes = 0;
};

// Points that fell out for one reason, with the point that came nearest (of memory) or the first one.
struct SearchLoss {
  int64_t count = 0;
  SearchPoint example;
  std::string detail;
  double excess_bytes = 0;
};

struct SearchResult {
  int64_t num_tried = 0, num_fitting = 0;
  std::vector<SearchChoice> best;  // fastest first
  // By reason: "batch", "layers", "memory", "not needed" (recompute where nothing has to be) and "options".
  std::map<std::string, SearchLoss> losses;
};

// All divisors of the devices as pipeline sizes, powers of two as tensor sizes and micro-batches, 1F1B, ZB-H1, and
// interleaved 1F1B with 2, 3, 4, 6 or 8 chunks. A long step is timed as a straight line through two shorter ones; the
// best are timed and counted whole.
SearchResult search_layouts(const SearchSpace& space, const Machine& machine, size_t most);

// "tensor 4, pipeline 12, micro-batch 2, 1F1B, recompute".
std::string to_string(const SearchPoint& point);
std::string search_text(const SearchResult& result, const SearchSpace& space);
// Of a result without any: how much the nearest needs, or what rules most out.
std::string why_nothing_fits(const SearchResult& result, const SearchSpace& space);
// Bars of the best: seconds of a step by what they are spent on, and memory.
std::string to_svg(const SearchResult& result, const SearchSpace& space);

}  // namespace espalier::plan
