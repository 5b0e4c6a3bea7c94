#include <algorithm>
#include <filesystem>

#include "config/deepspeed_config.h"
#include "config/run_config.h"
#include "config/unused_options.h"
#include "spec/optimizer.h"

namespace espalier::config {

namespace {

// Whoever gives --load alone expects the options of that run, which its folder has.
void name_recorded_options(const RunConfig& config, Problems& problems) {
  const std::string& load = config.checkpoint.load;
  const std::filesystem::path recorded = std::filesystem::path(load) / "config.toml";
  std::error_code error;
  if (load.empty() || !std::filesystem::is_regular_file(recorded, error)) return;
  const auto missing =
      std::count_if(problems.messages().begin(), problems.messages().end(),
                    [](const std::string& message) { return message.find(" is required") != std::string::npos; });
  if (missing > 1)
    problems.add("the run in '", load, "' has its options in config.toml: --recipe ", recorded.string(),
                 " takes them, and options after it change them");
}

}  // namespace

bool may_go_to_gpu(const RunConfig& config) {
  if (config.parallel.device != Device::kAuto) return config.parallel.device == Device::kCuda;
  std::error_code error;
  return std::filesystem::exists("/dev/nvidiactl", error);
}

void choose_zero_stage(RunConfig& config, OptionTable& table, Problems& problems) {
  ParallelConfig& parallel = config.parallel;
  const bool has_replicas = config.num_ranks.value_or(1) >= 2 * config.grid.tensor * config.grid.pipeline;
  if (!config.stays_on_one_machine || !has_replicas || may_go_to_gpu(config)) return;
  if (table.find("--zero-stage")->given() || parallel.use_distributed_optimizer || parallel.deepspeed) return;
  if (parallel.check_replicas > 0 || table.find("--check-replicas-policy")->given()) return;
  if (parallel.grad_reduce_in_bf16 || parallel.grad_reduce_type == GradReduceType::kBf16) return;
  if (spec::optimizer_kind(config.optimizer.optimizer).leaves_others_to_adamw()) return;
  parallel.zero_stage_is_chosen = true;
  table.set("--zero-stage", "1", "replicas on one machine", problems);
}

bool read_run(const Family& family, const std::vector<std::string>& arguments, RunConfig& config, OptionTable& table,
              Problems& problems) {
  add_options(family, table, config);
  if (!table.parse(arguments, problems)) return false;
  read_deepspeed_config(config, table, problems);
  choose_zero_stage(config, table, problems);
  resolve(config, table, problems);
  if (problems.empty() && table.says_notes())
    for (const std::string& message : unused_options(config, table)) warn_once(message);
  check_files(config, table, problems);
  name_recorded_options(config, problems);
  if (!config.validate_only) check_runnable(config, table, problems);
  return true;
}

LogLevel log_level(const LoggingConfig& logging) {
  if (logging.log_level == "debug") return LogLevel::kDebug;
  if (logging.log_level == "info") return LogLevel::kInfo;
  if (logging.log_level == "warning") return LogLevel::kWarning;
  return LogLevel::kQuiet;
}

}  // namespace espalier::config
