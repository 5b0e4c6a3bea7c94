// The rules by which a run ends by itself, seen by its launcher: --kill-switch-path and --exit-duration-in-mins.
//
// The ranks follow them between two steps; the launcher looks as well, as a rank may hang and never get there.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "launch/launcher.h"

namespace espalier {

struct EndRules {
  std::string kill_switch_path;                  // empty: none
  std::optional<int64_t> exit_duration_in_mins;  // from the start of the ranks
};

class EndWatch {
 public:
  explicit EndWatch(const EndRules& rules);
  ~EndWatch();
  EndWatch(const EndWatch&) = delete;
  EndWatch& operator=(const EndWatch&) = delete;

  // So many seconds after the ranks were started.
  launch::ReasonToEnd reason(double seconds) const;

 private:
  struct Seen {  // shared with a thread that a file system may hold for ever
    std::atomic<bool> exists{false}, ends{false};
  };
  EndRules rules_;
  std::shared_ptr<Seen> seen_ = std::make_shared<Seen>();
};

}  // namespace espalier
