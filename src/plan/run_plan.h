// A run before it runs: everything `espalier plan` prints, from the functions that training uses.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/memory.h"
#include "plan/messages.h"
#include "plan/partition.h"
#include "plan/schedule.h"
#include "plan/simulate.h"

namespace espalier::plan {

struct RunPlan {
  RunShape run;
  int64_t num_parameters = 0;
  Partition partition;
  int64_t num_micro_batches = 1;  // of a step on one data-parallel rank, at the full batch size
  std::vector<std::vector<Action>> tables;
  Simulation simulation;    // by the stages' FLOPs; the unit is one forward pass of a transformer layer
  double equal_bubble = 0;  // share of idle time if all stages took the same: the schedule's closed form
  // Where the batch grows: micro-batches of the first step, and their closed form.
  std::optional<int64_t> first_num_micro_batches;
  double first_bubble = 0;
  MemoryPlan memory;
  std::vector<StageMessages> messages;  // of each stage
  double checkpoint_bytes = 0, checkpoint_weight_bytes = 0, deepspeed_checkpoint_bytes = 0;
};

// Of a run with a known vocabulary. UserError where no partition works.
RunPlan plan_run(const RunShape& run);

// (p - 1) / (m + p - 1) of 1F1B, (p - 1) / (v m + p - 1) interleaved, and for ZB-H1, whose backwards split in two
// halves of a forward's length, (p - 1) / (3 m + p - 1).
double bubble_share(ScheduleKind kind, int64_t num_stages, int64_t num_micro_batches, int64_t num_chunks);

// Everything, as lines of at most about 120 columns. `memory_limit`: bytes of one GPU.
std::string to_text(const RunPlan& plan, std::optional<int64_t> memory_limit);

// What one rank holds and does: its place, its parameters with their local shapes and the elements that ZeRO leaves to
// it, and its schedule. UserError where there is no such rank.
std::string rank_text(const RunPlan& plan, int64_t rank);

// Rows as columns as wide as their widest cell; the first `num_texts` are flush left.
std::string table_text(const std::vector<std::vector<std::string>>& rows, size_t num_texts);

// Stages over time, a character for each unit: "0123 aabb"; cut where it is wider than `columns`.
std::string schedule_text(const RunPlan& plan, size_t columns);

// The schedule, and below it what a rank of each stage holds, as an SVG picture.
std::string to_svg(const RunPlan& plan, std::optional<int64_t> memory_limit);

}  // namespace espalier::plan
