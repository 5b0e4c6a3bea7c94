// The rules by which a run ends by itself, seen by its launcher: --kill-switch-path and --exit-duration-in-mins.
//
// The ranks follow them between two steps; the launcher looks as well, as a rank may hang and never get there.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "apps/launch/file_thread.h"

namespace espalier {

struct EndRules {
  std::string kill_switch_path;                  // empty: none
  std::optional<int64_t> exit_duration_in_mins;  // from the start of the launcher
};

class EndWatch {
 public:
  explicit EndWatch(const EndRules& rules);

  // So many seconds after the launcher was started; empty: none.
  std::string reason(double seconds) const;

 private:
  EndRules rules_;
  std::shared_ptr<std::atomic<bool>> exists_ = std::make_shared<std::atomic<bool>>(false);
  std::optional<FileThread> looks_;
};

}  // namespace espalier
