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
  if (arguments.empty()) throw UserError("no model family\n" + usage, ExitCode::kUsage);
  const std::string& name = arguments[0];
  if (const config::Family* family = families::find_family(name)) return run(*family, arguments);
  if (name.starts_with("-") && name.find("help") != std::string::npos) {
    std::printf("%s\n", usage.c_str());
    return 0;
  }
  throw UserError(concat("'", name, "' is not a model family: there are ", families::family_names(), "\n", usage),
                  ExitCode::kUsage);
}

}  // namespace espalier
