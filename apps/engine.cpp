// espalier-engine: the commands that need tensors. `espalier` checks their arguments and becomes this program.
#include <string>
#include <vector>

#include "base/log.h"
#include "base/shell.h"
#include "engine_generate.h"
#include "plan/run_config.h"
#include "run_main.h"
#include "tensor/cpu_allocator.h"
#include "train/run.h"

namespace espalier {
namespace {

using Words = std::vector<std::string>;

std::string command_line_of(const std::string& command, const Words& arguments) {
  std::string line = "espalier " + command;
  for (const std::string& word : arguments) line += " " + shell_word(word);
  return line;
}

int train_gpt(const Words& arguments) {
  ESPALIER_CHECK(!arguments.empty() && arguments[0] == "gpt", "espalier passes the family on");
  plan::RunConfig config;
  OptionTable table("espalier train gpt", "");
  table.say_notes(false);  // espalier has said them
  Problems problems;
  if (!plan::read_gpt_options({arguments.begin() + 1, arguments.end()}, config, table, problems)) return 0;
  problems.raise();
  set_log_level(plan::log_level(config.logging));
  train::run(config, table, command_line_of("train", arguments));
  return 0;
}

struct EngineCommand {
  const char* name;
  int (*run)(const Words& arguments);
};

constexpr EngineCommand kCommands[] = {
    {"train", train_gpt},
    {"generate", generate},
};

int dispatch(const Words& words) {
  if (!words.empty())
    for (const EngineCommand& command : kCommands)
      if (words[0] == command.name) return command.run({words.begin() + 1, words.end()});
  throw UserError("espalier-engine is started by espalier; use `espalier help`", ExitCode::kUsage);
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) {
  return espalier::run_main([&] {
    espalier::tensor::install_cpu_allocator();
    return espalier::dispatch({argv + 1, argv + argc});
  });
}
