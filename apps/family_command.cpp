#include "apps/family_command.h"

#include <cstdio>

#include "base/error.h"
#include "base/format.h"
#include "families/registry.h"

namespace espalier {

int run_with_family(const std::string& command, const std::string& takes, const std::vector<std::string>& arguments,
                    const std::function<int(const config::Family&, const std::vector<std::string>&)>& run) {
  const std::string usage =
      concat("usage: espalier ", command, " FAMILY ", takes, "; espalier ", command, " gpt --help explains them");
  if (arguments.empty())
    throw UserError(concat("no model family: there are ", families::family_names(), "\n", usage), ExitCode::kUsage);
  const std::string& name = arguments[0];
  if (const config::Family* family = families::find_family(name)) return run(*family, arguments);
  if (name.starts_with("-") && name.find("help") != std::string::npos) {
    std::printf("%s\n", usage.c_str());
    return 0;
  }
  const std::string as_recipe =
      name.ends_with(".toml") ? concat("; a recipe is given as espalier ", command, " gpt --recipe ", name) : "";
  throw UserError(
      concat("'", name, "' is not a model family: there are ", families::family_names(), as_recipe, "\n", usage),
      ExitCode::kUsage);
}

}  // namespace espalier
