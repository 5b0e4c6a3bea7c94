#include "apps/launch/end_rules.h"

#include <filesystem>

#include "base/error.h"

namespace espalier {

EndWatch::EndWatch(const EndRules& rules) : rules_(rules) {
  if (rules_.kill_switch_path.empty()) return;
  looks_.emplace([path = rules_.kill_switch_path, exists = exists_] {
    std::error_code none;
    *exists = std::filesystem::exists(path, none);
  });
}

std::string EndWatch::reason(double seconds) const {
  if (*exists_) return concat("the kill switch '", rules_.kill_switch_path, "' exists");
  if (rules_.exit_duration_in_mins && seconds > 60.0 * static_cast<double>(*rules_.exit_duration_in_mins))
    return concat(*rules_.exit_duration_in_mins, " minutes have passed (--exit-duration-in-mins)");
  return {};
}

}  // namespace espalier
