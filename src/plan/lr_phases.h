// A learning rate as a list of phases, each from where the one before it ends. What Megatron-DeepSpeed, Argonne's fork
// and Megatron-LM name --lr-decay-style are spellings of such lists (lr_schedule.h). Plain doubles.
//
// n is the position (samples, or tokens where a schedule counts them), s where a phase starts, e where it ends, and
// q = (n - s) / (e - s):
//   constant             from
//   linear               rising: from + (to - from) (n - s) / (e - s); falling: to + (1 - q) (from - to)
//   cosine               to + (cos(pi q) + 1) / 2 (from - to)
//   minus-sqrt           to + (1 - sqrt(q)) (from - to)                                    (arXiv 2405.18392)
//   exponential          to + (2 * 0.5^q - 1) (from - to)                                  (Megatron-LM's WSD)
//   geometric            from (to / from)^q; neither end may be 0
//   inverse-sqrt         max(to, from sqrt(max(s, 1)) / sqrt(max(n, 1)))
//   scaled-inverse-sqrt  from - (from - to) f(q) / f(1), f(t) = 1 / sqrt(1 + timescale t) - 1  (Argonne's fork)
// A phase holds for s < n <= e, the first also at its start; after the last one the rate stays at its `to`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"

namespace espalier::plan {

enum class LrShape {
  kConstant,
  kLinear,
  kCosine,
  kMinusSqrt,
  kExponential,
  kGeometric,
  kInverseSqrt,
  kScaledInverseSqrt,
};

std::string to_string(LrShape shape);

struct LrPhase {
  LrShape shape = LrShape::kConstant;
  double end = 0;
  double from = 0, to = 0;
  double timescale = 10;  // of kScaledInverseSqrt
  std::string name;       // in logs: "warmup", "cosine"
};

struct LrPlace {
  double rate = 0;
  size_t phase = 0;  // of the list; its size after the last phase
};

// `phases` in the order of their ends, the first one from `start` on; at least one.
LrPlace rate_at(const std::vector<LrPhase>& phases, double start, double position);

// What the words of --lr-phases need to become phases that count samples.
struct LrUnits {
  double peak = 0, floor = 0;   // --lr and --min-lr
  bool counts_steps = true;     // a length without a unit means steps, else samples
  int64_t samples_a_step = 1;   // --global-batch-size
  int64_t tokens_a_sample = 1;  // sequence length
  int64_t samples = 0;          // of the whole run
};

// Each word is SHAPE:LENGTH[:FROM[:TO]]. LENGTH: a number of steps (or samples, as the run is measured), or with a unit
// ("2000steps", "1e6samples", "5e9tokens"), or "rest": what the other phases leave of the run, once. FROM: where the
// phase before ended, at first 0 for a linear phase and the peak for others. TO: the same as FROM for a constant phase,
// the peak for a linear one that starts the list, else the floor. Empty parts take these. What is wrong becomes a
// problem that names `option`; the list is then empty.
std::vector<LrPhase> read_phases(const std::vector<std::string>& words, const LrUnits& units, const std::string& option,
                                 Problems& problems);

}  // namespace espalier::plan
