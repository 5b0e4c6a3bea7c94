// The page of `espalier launch --page`: the run of the ranks, shown by the launcher, which lives while they hang.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "launch/launch_options.h"

namespace espalier {

class LaunchedPage {
 public:
  // `words`: the training command that the ranks run, already checked. Serves the folder of its --save, which need not
  // exist yet, from a thread of its own, and logs the address. A UserError says why there is nothing to show.
  LaunchedPage(const launch::PageOptions& options, const std::vector<std::string>& words);
  ~LaunchedPage();

 private:
  struct Served;
  std::unique_ptr<Served> served_;
};

}  // namespace espalier
