// Finds the rank of a run that is slower than the rest, from the time that each rank's own work of a step takes: the
// step's time less what the rank waited for its peers. (Who comes last to the exchanges waits least, and the others
// wait for it.)
//
// Ranks are compared with those of the same work (their kin: the same pipeline stage and context position). Of each
// rank and step, with c its own time:
//   x = ln c - the median of ln c of its kin, without itself
// Slower by 5 % means that x has the mean d = ln 1.05 instead of 0. The evidence of a step for that is the logarithm of
// the likelihood ratio of the two under normal noise of standard deviation s,
//   e = d (x - d / 2) / s^2
// bounded to a fifth of the threshold either way, so that a hiccup of one to four steps names nobody. A rank is named
// when the sum of e, which never falls below 0 (Page's CUSUM), exceeds ln(20,000 n) for n ranks; the incident is over
// when the sum for the opposite does. s comes from the run itself: the median of |x - x of the step before| over the
// last 32 steps and all kin, by 0.6745 sqrt(2) (a lasting difference does not widen it), at least 0.2 %. The first two
// steps, and ten more until s is known, name nobody.
//
// A rank that is slow at times, as on a machine that others use, would be named and keep up again for ever: after each
// incident the next one of that rank takes twice the evidence, up to a thousand times; 10,000 steps without one halve
// that again.
//
// For noise that is independent from step to step, with a standard deviation of 2.5 % of c (2 % where three ranks are
// kin, 1.5 % where two are), and one step of a hundred half as long again: named within 30 steps of a slowdown by 5 %
// in at least 99 of 100 cases, less than one false name in 10,000 steps. straggler_rule_test.cpp measures both. Where
// it is noisier, naming takes longer, and false names stay as rare.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace espalier::launch {

class StragglerRule {
 public:
  static constexpr double kSlower = 0.05;

  // Of each rank, a number that its kin have in common. Ranks without kin are never named.
  explicit StragglerRule(const std::vector<int64_t>& kin_of_rank);

  struct Verdict {
    int64_t rank = 0;
    bool begins = true;     // false: the rank keeps up again
    double excess = 0;      // 0.07: slower by 7 %, over ...
    int64_t num_steps = 0;  // the last steps, this one included
  };
  // Takes one step: each rank's own time, in seconds. Returns what it changed.
  std::vector<Verdict> add_step(const std::vector<double>& own_seconds);

 private:
  struct Rank {
    double x = 0;
    double slow = 0, fast = 0;  // sums of evidence
    bool is_named = false;
    int64_t num_doublings = 0;  // of the threshold, after as many incidents
    int64_t last_change = 0;    // the step of the last incident, its end, or a halving
    double sum = 0;             // of x since `slow` (of a named one: `fast`) was 0 last
    int64_t count = 0;
  };
  struct Kin {
    std::vector<int64_t> ranks;
    std::vector<double> differences;  // the last, a ring
    size_t next = 0;
    double noise = 0;  // 0: not known yet
  };
  void compare(Kin& kin, const std::vector<double>& own_seconds);
  void learn_noise(Kin& kin);
  void weigh(const Kin& kin, std::vector<Verdict>& verdicts);
  double threshold_for(Rank& rank) const;

  std::vector<Rank> ranks_;
  std::vector<Kin> kins_;
  double threshold_;
  int64_t num_steps_ = 0;
};

}  // namespace espalier::launch
