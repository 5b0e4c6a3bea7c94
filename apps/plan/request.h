// What `espalier plan FAMILY` is asked: the flags of training, and a few of its own.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "plan/run_plan.h"
#include "plan/time/machine.h"

namespace espalier {

struct PlanRequest {
  config::RunConfig config;
  std::optional<int64_t> gpus, rank;
  std::optional<int64_t> memory_limit;  // bytes, of --gpu-memory
  std::string gpu_memory, svg;
  bool json = false;
  // Of --machine and what belongs to it.
  std::string machine_name;
  std::optional<plan::Machine> machine;
  std::optional<int64_t> nodes, tokens;
  std::optional<double> gpu_hour_price;
  bool sources = false, search = false, timetable = false, node_changes = false;
  // Of --faults.
  std::string faults;
  std::optional<double> detect_seconds, restart_seconds, save_seconds, fault_days;
};

// Parses and checks everything but files; false when help was printed. The vocabulary is --pad-vocab-size-to, or the
// tokenizer's where its files exist. `is_trial`: of a layout that is only tried; it says no notes, and --search, which
// takes the run's own layout for one copy of the model, then has no meaning.
bool read_plan_request(const config::Family& family, const std::vector<std::string>& arguments, PlanRequest& request,
                       Problems& problems, bool is_trial = false);
// A trial with other flags after those of the run.
bool read_trial(const config::Family& family, std::vector<std::string> arguments, const std::string& flags,
                PlanRequest& request, Problems& problems);

// Flags that, after `arguments`, make the run fit into the memory of the request: up to `most` choices, those that
// change least first. Empty where nothing tried fits.
struct FittingChoice {
  std::string flags;
  double peak_bytes = 0, bubble = 0;
};
std::vector<FittingChoice> fitting_choices(const std::vector<std::string>& arguments, const config::RunConfig& config,
                                           int64_t memory_limit, size_t most);

}  // namespace espalier
