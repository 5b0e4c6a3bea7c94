// espalier parity: checks every layout's configuration, then becomes the engine.
#include <cstdio>

#include "base/error.h"
#include "become_engine.h"
#include "commands.h"
#include "plan/parity_request.h"

namespace espalier {

int parity_main(const std::vector<std::string>& arguments) {
  const char* const usage = "usage: espalier parity gpt --layouts L1,L2,... [train options]; --help explains them";
  if (arguments.empty()) throw UserError(concat("no model family\n", usage), ExitCode::kUsage);
  if (arguments[0] == "-h" || arguments[0] == "--help") {
    std::printf("%s\n", usage);
    return 0;
  }
  if (arguments[0] != "gpt")
    throw UserError(concat("cannot compare layouts of ", arguments[0], ": the model families are gpt\n", usage),
                    ExitCode::kUsage);
  plan::ParityRequest request;
  Problems problems;
  if (!plan::read_parity_request({arguments.begin() + 1, arguments.end()}, request, problems)) return 0;
  problems.raise();
  become_engine("parity", arguments);
}

}  // namespace espalier
