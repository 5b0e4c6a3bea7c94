// espalier replay: finds what the step needs, then becomes the engine.
#include "apps/become_engine.h"
#include "apps/commands.h"
#include "apps/options/replay_options.h"

namespace espalier {

int replay_main(const std::vector<std::string>& arguments) {
  ReplayOptions options;
  Problems problems;
  if (!read_replay_options(arguments, options, problems)) return 0;
  problems.raise();
  plan_replay(options);
  become_engine("replay", arguments);
}

}  // namespace espalier
