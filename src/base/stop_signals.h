// SIGTERM, SIGINT, SIGHUP and SIGUSR1 as a wish: the program ends at its next good moment, not wherever it is.
//
//   StopSignals signals;                      // first, before anything slow
//   set_awaited("step 18 of 500");            // what an impatient user is told the program waits for
//   if (signals.received()) ...               // at each good moment
//
// The first signal is acknowledged at once on stderr, with what is awaited. Ctrl-C again says so once more and asks for
// a third within two seconds, which ends the process with exit code 130. A SIGHUP that was ignored (nohup) stays so.
#pragma once

#include <optional>
#include <string>

namespace espalier {

class StopSignals {
 public:
  // Installs the handlers, and lets in what was held back by hold_stop_signals(). Objects may be nested: the outermost
  // one counts.
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Name of the first signal that arrived ("SIGTERM"), if one did.
  std::optional<std::string> received() const;
};

// What is between a signal and the end, in a few words; the first 200 bytes count. One thread at a time.
void set_awaited(const std::string& what);

// Whether signals are acknowledged on stderr; of several ranks only the first does.
void acknowledge_signals(bool speaks);

// Holds the signals back, for the program that this process becomes by exec: it gets them when it builds a StopSignals.
void hold_stop_signals();

}  // namespace espalier
