// espalier launch: starts the ranks of this machine, watches them, and starts the whole group again when one fails.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launch/failure.h"
#include "launch/launch_options.h"

namespace espalier::launch {

// What a person may want to hear of, told by the launcher on the first machine (of ranks that hang, on theirs).
struct Incident {
  enum class Kind {
    kHang,       // the rank that the others wait for is ended
    kSuspended,  // all ranks here are stopped, and left alone
    kFailure,    // a rank failed, and all are ended
  };
  Kind kind = Kind::kFailure;
  std::string what;
  std::string run_folder;  // where the run keeps its records; empty: nowhere
  bool starts_again = false;
  std::vector<Failure> failures = {};  // of kFailure, the cause first
};

// How `what` ends where the run goes on after a failure; who reads the run's records goes by it (watch/sight.h).
inline constexpr const char* kRestartFollows = " follows";
inline constexpr const char* kGoesOnWithout = "the run goes on without that machine";

// What each rank runs.
struct RankProgram {
  std::vector<std::string> command;
  std::string name;  // in reports: "espalier train gpt"
  bool is_ours =
      true;  // meets in the launcher's rendezvous store; another program gets a free MASTER_PORT for one of its own
  std::function<void(const Incident&)> on_incident = {};  // may be empty
  // Of runs on a changing number of machines (--nnodes MIN:MAX): whether it can run on so many ranks. Empty: on any.
  std::function<bool(int64_t num_ranks)> fits = {};
  // Why the run has to end now, so many seconds after this launcher was started, by rules that its ranks follow after
  // the step in progress, unless they hang; an empty text: it need not. Ranks that are started again find the reason
  // there as well, and only save what they have. Empty: there are no such rules.
  std::function<std::string(double seconds)> reason_to_end = {};
  // Told to stop it saves, and started again it goes on from there: machines that come late may be taken in.
  bool goes_on_after_stop = false;
};

// Returns the exit code: 0 when all ranks ended well, that of the first rank that failed, 128 + signal when the
// launcher was told to stop and the ranks did not end well. SIGTERM, SIGINT, SIGHUP and SIGQUIT are passed on to the
// ranks and end the launcher with them; SIGUSR1 and SIGUSR2 are passed on only (after SIGUSR1 our own ranks are
// expected to end, and are not started again). Blocks these signals in the calling thread.
int run_launcher(const LaunchOptions& options, const RankProgram& program);

}  // namespace espalier::launch
