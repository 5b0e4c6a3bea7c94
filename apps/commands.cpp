#include "commands.h"

namespace espalier {

const std::vector<Command>& commands() {
  static const std::vector<Command> list = {
  };
  return list;
}

}  // namespace espalier
