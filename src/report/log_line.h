// Megatron-DeepSpeed's line of a training step and its block of an evaluation: people grep for them.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "report/step_report.h"

namespace espalier::report {

// Averages steps between two lines.
class LogLine {
 public:
  void add(const StepReport& report);
  bool empty() const { return num_steps_ == 0; }
  // " iteration        1/     500 | consumed samples: ..." with the averages since the last call, and starts again.
  // As in Megatron the loss field is missing when its average is not a number.
  std::string take();
  // " loss by data set | de: 3.210000E+00 | fr: ..." since the last call of take_by_source; empty for a single set.
  std::string take_by_source();

 private:
  StepReport last_;
  int64_t num_steps_ = 0, num_skipped_ = 0, num_nan_ = 0;
  double seconds_ = 0, samples_ = 0, hardware_flops_ = 0;
  // Of the steps that were not skipped and had targets of that loss, in the order in which losses first came.
  struct LossSum {
    std::string name;
    double sum = 0;
    int64_t num_steps = 0;
  };
  std::vector<LossSum> loss_sums_;
  struct Source {
    double sum = 0, tokens = 0;
  };
  // By data set, and by what its name is followed by: nothing for the first loss, the names of the others.
  std::map<std::pair<std::string, std::string>, Source> sources_;
};

// "[Rank 0] (after 5 iterations) memory (MB) | allocated: ...": Megatron's line of a GPU's memory; empty without a GPU.
std::string memory_line(const StepReport& report);

// "valid loss at iteration 1000 | lm loss value: 2.300000E+00 | lm loss PPL: 9.974182E+00 | " between two rules.
std::string evaluation_block(const std::string& set_name, const std::string& when,
                             const std::vector<NamedLoss>& losses);

// exp(min(20, loss))
double perplexity(double loss);

}  // namespace espalier::report
