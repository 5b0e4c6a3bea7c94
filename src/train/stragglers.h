// Names the rank that is slower than the rest (launch/straggler_rule.h): an event and a line in the log when it begins,
// and when it is over.
//
// Each rank measures its own time of a step, less what it waits for its peers; every five steps the first rank gathers
// and evaluates them. On the CPU: ranks whose exchanges are on GPUs wait there, unseen.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "dist/grid.h"
#include "launch/straggler_rule.h"
#include "report/run_log.h"
#include "train/observer.h"

namespace espalier::train {

class Stragglers : public Observer {
 public:
  // Collective; both outlive it.
  Stragglers(const dist::Grid& grid, report::RunLog& log);
  void before_step(int64_t step) override;
  void after_step(const report::StepReport& report) override;

 private:
  void judge(const std::vector<std::string>& texts, int64_t step);
  std::string in_words(const launch::StragglerRule::Verdict& verdict) const;

  const dist::Grid& grid_;
  report::RunLog& log_;
  bool watches_;
  std::vector<std::string> hosts_;
  launch::StragglerRule rule_;
  std::chrono::steady_clock::time_point start_;
  double waited_before_ = 0;
  std::vector<double> own_seconds_;  // of the steps since they were gathered
};

}  // namespace espalier::train
