// The jobs that follow one another on a run: whether there will be one after the present one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "watch/sight.h"

namespace espalier::watch {

struct QueuedJob {
  std::string id;  // "123", "123_2", "123_[3-10%1]"
  bool runs = false, waits = false;
  std::optional<double> seconds_left;
};

// What `squeue -h -o '%i|%T|%L'` prints.
std::vector<QueuedJob> parse_squeue(const std::string& text);
// What `qstat -f -F json` prints, of jobs of that name. A UserError where it is something else.
std::vector<QueuedJob> parse_qstat(const std::string& text, const std::string& job_name);

bool any_waits(const std::vector<QueuedJob>& jobs);

struct ChainRule {
  double ahead_seconds = 3600;  // before the last job's end, when the next one should wait already
  bool may_submit = false;      // there is a script of the next job
};

struct ChainStep {
  bool submits = false;
  std::vector<std::string> after;  // jobs that it must wait for: their numbers
  std::string trouble;             // for people; empty: nothing
};

class Chain {
 public:
  explicit Chain(ChainRule rule) : rule_(rule) {}

  // What to do. A run that has failed by itself is not submitted again, and neither is one that has gained no step
  // since the last submission.
  ChainStep look(const RunSight& sight, const std::vector<QueuedJob>& jobs);
  void note_submitted(const RunSight& sight) { submitted_at_ = sight.step; }

 private:
  ChainRule rule_;
  std::optional<int64_t> submitted_at_;  // step
};

}  // namespace espalier::watch
