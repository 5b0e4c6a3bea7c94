#include "apps/launch/launched_run.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "apps/commands.h"
#include "base/error.h"
#include "config/run_config.h"
#include "families/registry.h"

namespace espalier {

namespace {

// Of words that train something; problems are reported by who checks them.
std::optional<config::RunConfig> read_config(const std::vector<std::string>& words) {
  const config::Family* family = words.size() > 1 && words[0] == "train" ? families::find_family(words[1]) : nullptr;
  if (family == nullptr) return std::nullopt;
  config::RunConfig run;
  OptionTable table("", "");
  table.say_notes(false);
  Problems ignored;
  config::read_run(*family, {words.begin() + 2, words.end()}, run, table, ignored);
  return run;
}

}  // namespace

bool runs_as_ranks(const std::string& word) {
  if (word == "launch" || word == "submit") return false;
  return std::any_of(commands().begin(), commands().end(),
                     [&](const Command& command) { return word == command.name; });
}

std::string save_folder_of(const std::vector<std::string>& words, const std::string& option) {
  const std::optional<config::RunConfig> run = read_config(words);
  if (!run)
    throw UserError(option + " belongs to a training run (train gpt ...), but the ranks run something else",
                    ExitCode::kUsage);
  if (run->checkpoint.save.empty())
    throw UserError(option + " follows what a run writes into its folder, but this one has none: give --save FOLDER",
                    ExitCode::kUsage);
  return std::filesystem::absolute(run->checkpoint.save);
}

bool goes_on_where_it_stopped(const std::vector<std::string>& words) {
  const std::optional<config::RunConfig> run = read_config(words);
  return run && !run->checkpoint.save.empty() && !run->checkpoint.load.empty();
}

EndRules end_rules_of(const std::vector<std::string>& words) {
  const std::optional<config::RunConfig> run = read_config(words);
  if (!run) return {};
  return {.kill_switch_path = run->training.kill_switch_path,
          .exit_duration_in_mins = run->training.exit_duration_in_mins};
}

}  // namespace espalier
