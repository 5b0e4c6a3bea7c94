// espalier parity: checks every layout's configuration, then becomes the engine.
#include "apps/become_engine.h"
#include "apps/commands.h"
#include "apps/family_command.h"
#include "base/error.h"
#include "config/parity_request.h"

namespace espalier {

int parity_main(const std::vector<std::string>& arguments) {
  return run_with_family("parity", "--layouts L1,L2,... [options of training]", arguments,
                         [](const config::Family& family, const std::vector<std::string>& words) -> int {
                           config::ParityRequest request{.family = &family, .layouts = {}, .arguments = {}};
                           Problems problems;
                           if (!config::read_parity_request({words.begin() + 1, words.end()}, request, problems))
                             return 0;
                           problems.raise();
                           become_engine("parity", words);
                         });
}

}  // namespace espalier
