// espalier: finds the subcommand and runs it.
#include <cstdio>
#include <utility>

#include "base/format.h"
#include "base/version.h"
#include "commands.h"
#include "run_main.h"

namespace espalier {
namespace {

using Words = std::vector<std::string>;

std::string usage() {
  std::string text = "usage: espalier COMMAND [arguments]\n\n";
  for (const Command& command : commands()) text += format_printf("  %-12s %s\n", command.name, command.summary);
  return text + "\nespalier COMMAND --help explains a command. Also: espalier help [COMMAND], espalier --version.\n";
}

int dispatch(Words words) {
  words = canonical_words(std::move(words));
  const bool wants_help = !words.empty() && (words[0] == "help" || words[0] == "--help" || words[0] == "-h");
  if (wants_help && words.size() > 1) {
    words.erase(words.begin());
    words.push_back("--help");
  } else if (wants_help) {
    std::fputs(usage().c_str(), stdout);
    return 0;
  }
  if (words.empty()) throw UserError("no command\n" + usage(), ExitCode::kUsage);
  if (words[0] == "--version") {
    std::printf("espalier %s\n", kVersion);
    return 0;
  }
  Words names;
  for (const Command& command : commands()) {
    if (words[0] == command.name) return command.run({words.begin() + 1, words.end()});
    names.push_back(command.name);
  }
  const Words near = nearest_names(words[0], names);
  throw UserError(
      concat("unknown command ", words[0], near.empty() ? "; " : "; did you mean " + join(near, " or ") + "? ",
             "The commands are ", join(names, ", ")),
      ExitCode::kUsage);
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) {
  return espalier::run_main([&] { return espalier::dispatch({argv + 1, argv + argc}); });
}
