// The ranks of this machine as processes: started together, watched, stopped together.
//
//   WorkerGroup group(workers);            // all run
//   while (group.num_running() > 0 && !group.any_failed()) { wait for SIGCHLD; group.reap(); }
//   group.stop(SIGTERM, seconds);          // the rest, with all that they started
// or, where ranks can be held (launch/hold.h):
//   group.hold(seconds);                   // ends those that do not say in time that they wait
//   group.start_again(workers);            // these go on; in place of the others new processes start
//
// Each leads a session of its own, so that a terminal's signals reach it only through the launcher, and
// ends with SIGKILL when the launcher dies. To be used by one thread; it must live as long as the ranks.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/whereabouts.h"
#include "launch/failure.h"
#include "launch/hold.h"

namespace espalier::launch {

struct Worker {
  int64_t rank = 0, local_rank = 0;
  std::vector<std::string> command;              // a path, or a name that is looked for in PATH
  std::map<std::string, std::string> variables;  // all of them
  int stdout_to = -1, stderr_to = -1;            // -1: the launcher's own. Closed once the rank has them.
  std::string error_file;
  std::string stderr_file;       // whose last lines the report shows; empty: none
  std::function<Sight()> sight;  // what the rank says of itself; may be empty
  bool can_be_held = false;
};

class WorkerGroup {
 public:
  // UserError if the program cannot be started; then none runs.
  explicit WorkerGroup(std::vector<Worker> workers);
  ~WorkerGroup();  // kills what still runs
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;

  void reap();  // takes notice of those that have ended
  int64_t num_running() const;
  bool any_failed() const { return !failures_.empty(); }
  // Those that failed before stop() was called.
  const std::vector<Failure>& failures() const { return failures_; }
  // All have ended, and with exit code 0, also those that were sent a signal.
  bool all_well() const;

  void send(int signal) const;  // to every rank that runs
  // By index, -1 for those that have ended.
  std::vector<pid_t> pids() const;
  // Kills this rank, which then counts as failed with this message.
  void end_hung(size_t index, const std::string& why);
  // Sends `signal`, waits at most that long and kills the rest, then everything in the ranks' sessions.
  void stop(int signal, double patience_seconds);

  bool any_offered() const;  // to be held
  // Waits until all that run are held, at most that long, and kills the others, with what they have started. Those that
  // have not offered it get SIGTERM.
  void hold(double patience_seconds);
  int64_t num_held() const;
  bool is_held(size_t index) const { return processes_.at(index).is_held; }
  // After hold(): the variables are those of the next start. UserError if a program cannot be started; then none runs.
  void start_again(std::vector<Worker> workers);
  // One that has left what it did, though nobody else has ended, fails soon.
  void let_go_of_strays();

 private:
  struct Process {
    pid_t pid = -1;
    bool running = false;
    int status = 0;
    std::string hung = {};  // why it was killed
    std::unique_ptr<HoldLine> line = {};
    bool is_held = false;
    std::optional<std::chrono::steady_clock::time_point> stray_since = {};
  };
  bool must_end(const Process& process) const { return process.running && !process.is_held; }
  void look_who_is_held();
  void bury(const std::vector<size_t>& indices);
  void start(size_t index);
  bool any_lacked_memory();
  void note_end(size_t index, pid_t pid, int status);

  std::vector<Worker> workers_;
  std::vector<Process> processes_;
  std::vector<Failure> failures_;
  bool stopping_ = false;
  double stop_time_ = 0;
  int64_t num_oom_kills_ = 0;              // so far
  std::optional<bool> any_lacked_memory_;  // of those that one reap() finds
};

}  // namespace espalier::launch
