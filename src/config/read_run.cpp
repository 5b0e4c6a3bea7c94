#include "config/deepspeed_config.h"
#include "config/run_config.h"
#include "config/unused_options.h"

namespace espalier::config {

bool read_run(const Family& family, const std::vector<std::string>& arguments, RunConfig& config, OptionTable& table,
              Problems& problems) {
  add_options(family, table, config);
  if (!table.parse(arguments, problems)) return false;
  read_deepspeed_config(config, table, problems);
  resolve(config, table, problems);
  if (problems.empty() && table.says_notes())
    for (const std::string& message : unused_options(config, table)) warn_once(message);
  check_files(config, table, problems);
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
