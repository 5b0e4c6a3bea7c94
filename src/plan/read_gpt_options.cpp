#include <cstdlib>

#include "base/literal.h"
#include "plan/run_config.h"

namespace espalier::plan {
namespace {

// Launchers tell each process how many there are.
std::optional<int64_t> num_ranks_of_environment(Problems& problems) {
  const char* text = std::getenv("WORLD_SIZE");
  if (text == nullptr || *text == '\0') return std::nullopt;
  const std::optional<int64_t> count = parse_python_int(text);
  const bool is_good = count && *count >= 1 && *count <= 10'000'000;
  if (!is_good) problems.add("environment variable WORLD_SIZE=", text, " is not a number of processes; unset it");
  return is_good ? count : std::nullopt;
}

}  // namespace

bool read_gpt_options(const std::vector<std::string>& arguments, RunConfig& config, OptionTable& table,
                      Problems& problems) {
  add_gpt_options(table, config);
  if (!table.parse(arguments, problems)) return false;
  config.num_ranks = num_ranks_of_environment(problems);
  resolve(config, table, problems);
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

}  // namespace espalier::plan
