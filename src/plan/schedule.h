// Pipeline schedules as tables: for each stage the list of what it does, in order. Pure functions.
//
// A table says nothing about messages: a stage that forwards part c * num_stages + stage of a micro-batch needs the
// output of the part before it and then sends its own on; backwards the other way round. Sends never wait for their
// receiver, receives wait for their message (plan/simulate.h runs tables by that rule).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace espalier::plan {

struct Action {
  // kBackward computes the input gradient, and the weight gradients too unless the schedule has kWeightGrad actions,
  // which then compute those of the oldest backward that still waits.
  enum class Kind { kForward, kBackward, kWeightGrad };
  Kind kind = Kind::kForward;
  int64_t micro_batch = 0;
  int64_t chunk = 0;  // virtual stage
  bool operator==(const Action&) const = default;
};

enum class ScheduleKind { k1F1B, kInterleaved, kZeroBubble };

// The table of one stage. kInterleaved takes a multiple of num_stages micro-batches; the others one chunk.
std::vector<Action> make_schedule(ScheduleKind kind, int64_t num_stages, int64_t stage, int64_t num_micro_batches,
                                  int64_t num_chunks = 1);

// All stages' tables.
std::vector<std::vector<Action>> make_schedules(ScheduleKind kind, int64_t num_stages, int64_t num_micro_batches,
                                                int64_t num_chunks = 1);

// Forwards only, for evaluation; any number of micro-batches.
std::vector<Action> make_forward_schedule(int64_t num_stages, int64_t num_micro_batches, int64_t num_chunks = 1);

// One forward, one backward (Narayanan et al. 2019, PipeDream-Flush): stage `stage` of `num_stages` runs
// min(num_stages - stage - 1, num_micro_batches) forwards ahead, then alternates, then drains. With one stage every
// forward is followed by its backward, so one micro-batch's activations are alive at a time.
std::vector<Action> schedule_1f1b(int64_t num_stages, int64_t stage, int64_t num_micro_batches);

// The same with several chunks a stage (Narayanan et al. 2021): micro-batches pass in groups of num_stages through
// chunk 0, 1, ... of all stages. Cuts the bubble by num_chunks and sends num_chunks times as much.
std::vector<Action> schedule_interleaved(int64_t num_stages, int64_t stage, int64_t num_micro_batches,
                                         int64_t num_chunks);

// ZB-H1 (Qi et al. 2023): 1F1B whose weight gradients wait, longer on later stages, until they fill what would be
// bubbles. No stage keeps more micro-batches than the first one of 1F1B.
std::vector<Action> schedule_zero_bubble(int64_t num_stages, int64_t stage, int64_t num_micro_batches);

// What is wrong with the tables of all stages, or empty: each forward, backward (and weight gradient, if there are
// any) exactly once, in an order that every stage can follow, with messages between two stages received in the order
// in which they are sent. `forward_only`: tables of make_forward_schedule.
std::string check_schedule(const std::vector<std::vector<Action>>& tables, int64_t num_micro_batches,
                           int64_t num_chunks, bool forward_only = false);

// "1F1B", "interleaved 1F1B", "ZB-H1".
std::string to_string(ScheduleKind kind);
// "F0 F1 B0 W0", with the chunk after a dot where `num_chunks` > 1: "F0.1".
std::string to_string(const std::vector<Action>& actions, int64_t num_chunks = 1);

}  // namespace espalier::plan
