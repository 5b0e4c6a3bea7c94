// espalier: finds the subcommand and runs it.
#include <utility>

#include "apps/commands.h"
#include "apps/run_main.h"

namespace espalier {
namespace {

int dispatch(std::vector<std::string> words) {
  words = canonical_words(std::move(words));
  if (!words.empty() && (words[0] == "--help" || words[0] == "-h" || words[0] == "--help-all")) words[0] = "help";
  if (!words.empty() && words[0] == "--version") words[0] = "version";
  return run_subcommand("espalier", commands(), words);
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) {
  return espalier::run_main([&] { return espalier::dispatch({argv + 1, argv + argc}); });
}
