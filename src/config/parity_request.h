// What `espalier parity FAMILY` is asked: the flags of a training run, and the layouts in which to repeat it.
#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"
#include "plan/layout.h"

namespace espalier::config {

struct ParityRequest {
  const Family* family = nullptr;
  std::vector<std::string> layouts;  // the first is what the others are compared with
  bool on_gpus = false;              // --device cuda: all layouts, compared with the first on the CPU
  spec::AttentionBackend attention_backend = spec::AttentionBackend::kFlash;  // on GPUs
  int64_t num_steps = 50;
  bool json = false;
  std::vector<std::string> arguments;  // as given
};

// Parses and checks a run of request.family in every layout, before any rank starts. False when help was printed.
bool read_parity_request(const std::vector<std::string>& arguments, ParityRequest& request, Problems& problems);

// The run in one layout: the options as given, then the layout's. `table` gets its rows here. Neither saves nor loads.
plan::Layout read_parity_layout(const ParityRequest& request, const std::string& layout, RunConfig& config,
                                OptionTable& table, Problems& problems);

}  // namespace espalier::config
