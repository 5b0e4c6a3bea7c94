// espalier generate: needs tensors, so it is all the engine's.
#include "become_engine.h"
#include "commands.h"

namespace espalier {

int generate_main(const std::vector<std::string>& arguments) { become_engine("generate", arguments); }

}  // namespace espalier
