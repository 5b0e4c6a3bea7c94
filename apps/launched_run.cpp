#include "launched_run.h"

#include <filesystem>

#include "base/error.h"
#include "config/run_config.h"
#include "families/registry.h"

namespace espalier {

std::string save_folder_of(const std::vector<std::string>& words, const std::string& option) {
  const config::Family* family = words.size() > 1 && words[0] == "train" ? families::find_family(words[1]) : nullptr;
  if (family == nullptr)
    throw UserError(option + " belongs to a training run (train gpt ...), but the ranks run something else",
                    ExitCode::kUsage);
  config::RunConfig run;
  OptionTable table("", "");
  table.say_notes(false);
  Problems ignored;  // the check of the command has reported them
  config::read_run(*family, {words.begin() + 2, words.end()}, run, table, ignored);
  if (run.checkpoint.save.empty())
    throw UserError(option + " follows what a run writes into its folder, but this one has none: give --save FOLDER",
                    ExitCode::kUsage);
  return std::filesystem::absolute(run.checkpoint.save);
}

}  // namespace espalier
