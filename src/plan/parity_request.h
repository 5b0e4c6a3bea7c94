// What `espalier parity gpt` is asked: the flags of a training run, and the layouts in which to repeat it.
#pragma once

#include <string>
#include <vector>

#include "plan/layout.h"
#include "plan/run_config.h"

namespace espalier::plan {

struct ParityRequest {
  std::vector<std::string> layouts;  // the first is what the others are compared with
  int64_t num_steps = 50;
  bool json = false;
  std::vector<std::string> arguments;  // as given
};

// Parses and checks the run in every layout, before any rank starts. False when help was printed.
bool read_parity_request(const std::vector<std::string>& arguments, ParityRequest& request, Problems& problems);

// The run in one layout: the options as given, then the layout's. `table` gets its rows here. Neither saves nor loads.
Layout read_parity_layout(const ParityRequest& request, const std::string& layout, RunConfig& config,
                          OptionTable& table, Problems& problems);

}  // namespace espalier::plan
