// espalier serve: checks the options, then becomes the engine, which has the tensors.
#include "apps/become_engine.h"
#include "apps/commands.h"
#include "apps/options/serve_options.h"

namespace espalier {

int serve_main(const std::vector<std::string>& arguments) {
  ServeOptions options;
  if (!read_serve_options(arguments, options)) return 0;
  become_engine("serve", arguments);
}

}  // namespace espalier
