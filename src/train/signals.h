// SIGTERM, SIGINT and SIGUSR1 ask a run to save and stop at the end of the step; a second SIGINT ends it at once.
#pragma once

#include <optional>
#include <string>

namespace espalier::train {

// Installs the handlers for the life of the object (one at a time).
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Name of the signal that arrived ("SIGTERM"), if one did.
  std::optional<std::string> received() const;
};

}  // namespace espalier::train
