// --skip-step-sigma, --skip-step-window: whether the loss or the gradient norm of a step is beyond what the steps
// before it were like, so that its update is better not made.
//
//   if (!statistics.objection({{"lm loss", 9.1}, {"grad norm", 40}})) update();
//
// The window holds the last steps whose update was made; nothing is skipped before it is full, and a step that is
// skipped does not enter it: what follows is what it would be had that update never been. Where the run has reached
// another level for good and a whole window of steps in a row was skipped, the window begins anew.
//
// Pure arithmetic in double on numbers that all ranks have to the bit, so that all decide alike.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace espalier::train {

class StepStatistics {
 public:
  // Beyond mean + `sigma` standard deviations (of the window's steps, as a population), upwards alone. `sigma` 0:
  // never.
  StepStatistics(double sigma, int64_t window) : sigma_(sigma), window_(static_cast<size_t>(window)) {}

  bool is_on() const { return sigma_ > 0; }

  struct Step {
    double loss = 0, grad_norm = 0;
  };
  // Takes the step into account. Empty: its update is to be made; else why not, with numbers.
  std::string judge(const Step& step);

  // What a checkpoint holds, as text that has every bit: the numbers of the window, and how many steps were skipped in
  // a row.
  std::string state() const;
  void restore(const std::string& state);

 private:
  double sigma_;
  size_t window_;
  std::vector<Step> steps_;  // the oldest first
  int64_t num_skipped_ = 0;  // in a row
};

}  // namespace espalier::train
