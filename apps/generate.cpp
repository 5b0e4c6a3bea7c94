// espalier generate: checks the options, then becomes the engine, which has the tensors.
#include "apps/become_engine.h"
#include "apps/commands.h"
#include "apps/options/generate_options.h"

namespace espalier {

int generate_main(const std::vector<std::string>& arguments) {
  GenerateOptions options;
  if (!read_generate_options(arguments, options)) return 0;
  become_engine("generate", arguments);
}

}  // namespace espalier
