// espalier generate: checks the options, then becomes the engine, which has the tensors.
#include "apps/become_engine.h"
#include "apps/commands.h"
#include "apps/options/generate_options.h"
#include "base/log.h"

namespace espalier {

int generate_main(const std::vector<std::string>& arguments) {
  GenerateOptions options;
  if (!read_generate_options(arguments, options)) return 0;
  const bool draws_otherwise = options.temperature != 1 || options.top_k > 1 || options.top_p > 0;
  if (options.greedy && draws_otherwise)
    log_warning("--greedy takes the likeliest token: --temperature, --top-k and --top-p have no effect");
  become_engine("generate", arguments);
}

}  // namespace espalier
