// espalier data: what can be done with token files.
#include <cstdio>

#include "base/error.h"
#include "base/format.h"
#include "commands.h"
#include "data_commands.h"

namespace espalier {
namespace {

// In the order in which the help shows them.
const std::vector<Command> kSubcommands = {
    {"inspect", "what is inside: counts, sizes, the first documents as text", data_inspect_main},
    {"check", "read everything: the whole index, every id against the vocabulary", data_check_main},
    {"merge", "append data sets, or the parts of preprocess --shard, into one", data_merge_main},
    {"blend", "weigh data sets and write the split files that training reads", data_blend_main},
    {"sample", "samples as training will read them, as text or ids", data_sample_main},
};

std::string data_usage() {
  std::string text = "usage: espalier data COMMAND [arguments]\n\n";
  for (const Command& command : kSubcommands) text += format_printf("  %-8s %s\n", command.name, command.summary);
  return text;
}

}  // namespace

int data_main(const std::vector<std::string>& arguments) {
  if (arguments.empty()) throw UserError("no command\n" + data_usage(), ExitCode::kUsage);
  if (arguments[0] == "--help" || arguments[0] == "-h") {
    std::fputs(data_usage().c_str(), stdout);
    return 0;
  }
  std::vector<std::string> names;
  for (const Command& command : kSubcommands) {
    if (arguments[0] == command.name) return command.run({arguments.begin() + 1, arguments.end()});
    names.push_back(command.name);
  }
  const std::vector<std::string> near = nearest_names(arguments[0], names);
  const std::string guess = near.empty() ? "" : "; did you mean " + join(near, ", ") + "?";
  throw UserError(concat("unknown command data ", arguments[0], guess, ". Commands: ", join(names, ", ")),
                  ExitCode::kUsage);
}

}  // namespace espalier
