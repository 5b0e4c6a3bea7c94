// espalier parity: checks every layout's configuration, then becomes the engine.
#include "apps/become_engine.h"
#include "apps/commands.h"
#include "apps/family_command.h"
#include "apps/tokenizer/run_tokenizer.h"
#include "base/error.h"
#include "config/parity_request.h"

namespace espalier {
namespace {

// That it can be read, before any rank is started. Its files exist, which was checked.
void check_tokenizer(const config::ParityRequest& request) {
  config::RunConfig run;
  OptionTable table("espalier parity", "");
  Problems none;
  config::read_parity_layout(request, request.layouts.front(), run, table, none);
  load_run_tokenizer(run.tokenizer);
}

}  // namespace

int parity_main(const std::vector<std::string>& arguments) {
  return run_with_family("parity", "--layouts L1,L2,... [options of training]", arguments,
                         [](const config::Family& family, const std::vector<std::string>& words) -> int {
                           config::ParityRequest request{.family = &family, .layouts = {}, .arguments = {}};
                           Problems problems;
                           if (!config::read_parity_request({words.begin() + 1, words.end()}, request, problems))
                             return 0;
                           if (request.layouts.size() == 1 && !request.on_gpus)
                             problems.add("--layouts ", request.layouts[0],
                                          " names one layout, which is compared with none: name two or more, as in ",
                                          "tp1pp1dp1,", request.layouts[0]);
                           problems.raise();
                           check_tokenizer(request);
                           become_engine("parity", words);
                         });
}

}  // namespace espalier
