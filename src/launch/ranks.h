// The ranks of one machine in one round, as far as its launcher decides over them: real processes (launcher.cpp), or
// simulated ones in tests.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/whereabouts.h"
#include "launch/failure.h"
#include "launch/launcher.h"
#include "launch/round.h"

namespace espalier::launch {

struct ToldToEnd {
  std::string by;  // "SIGUSR1", "the kill switch '...' exists"
  double seconds_since = 0;
};

class Ranks {
 public:
  virtual ~Ranks() = default;  // kills what still runs
  virtual void reap() = 0;     // takes notice of those that have ended
  // Kills those at which the run hangs; one that was told to end may hang for no longer than bound_at_end().
  virtual void end_hung(const std::optional<ToldToEnd>& told) = 0;
  virtual double bound_at_end() const = 0;  // seconds; 0: none is ever killed for hanging
  virtual int64_t num_running() const = 0;
  virtual bool all_well() const = 0;  // all have ended, and with exit code 0, also those that were sent a signal
  virtual const std::vector<Failure>& failures() const = 0;  // of those that failed before stop()
  virtual Sight sight() const = 0;                           // of the first rank here
  virtual void send(int signal) = 0;                         // to every rank that runs
  // Sends `signal`, waits at most that long and kills the rest.
  virtual void stop(int signal, double patience_seconds) = 0;
  virtual void finish_output() = 0;      // all have ended: passes on what they have written
  virtual bool may_be_held() const = 0;  // any of them
  // The ranks leave what they do, as another has ended, and wait for the next start; those that cannot are ended. How
  // many wait.
  virtual int64_t hold(double patience_seconds) = 0;
  // Some have left though nobody has ended, as far as the round's launchers know: they fail soon.
  virtual void let_go_of_strays() = 0;

  bool any_failed() const { return !failures().empty(); }
};

// What a launcher has on its machine.
class LaunchSite {
 public:
  virtual ~LaunchSite() = default;
  // `held`: ranks of the round before, those of which that wait go on. May be null.
  virtual std::unique_ptr<Ranks> start(const Round& round, std::unique_ptr<Ranks> held) = 0;
  virtual bool hosts_store() const = 0;
  virtual bool kill_is_asked() const = 0;  // by espalier ctl: the signal that comes with it kills at once
  // Whether a copy of a rank's state is in memory, of a rank here or of another machine.
  virtual bool has_snapshots() const = 0;
  virtual void forget_snapshots() = 0;
  virtual std::string kept_folder() const = 0;  // of the ranks' files; empty: none is kept

  virtual void tell(const Incident& incident) = 0;
  virtual void say_cause(const std::vector<Failure>& alike, const std::string& run_folder) = 0;
  virtual void report(std::vector<Failure> failures) = 0;  // sorted, at least one: on what this launcher ends of
};

}  // namespace espalier::launch
