// What watch has done for runs, by commands in processes of their own: backups, retention, mirrors. One runs at a time;
// while one does, watch goes on looking.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/worker_group.h"
#include "watch/judge.h"

namespace espalier::watch {

struct Chore {
  std::string name, run;             // "backup", and the folder of the run
  std::vector<std::string> command;  // a path, and its arguments
  std::string log;                   // a file, of what it last printed
  int other_answer = 0;              // an exit code that is no failure either
  bool is_quiet = false;             // that it failed is no incident
};

struct ChoreEnd {
  std::string name, run;
  std::string trouble;  // empty: it went well
};

class Chores {
 public:
  explicit Chores(double again_seconds = 600) : again_seconds_(again_seconds) {}
  ~Chores();

  void add(Chore chore);
  // Wants it done for `occasion` (a number of what it depends on: the newest checkpoint, a time), once unless it fails;
  // then again later. `now`: seconds.
  void want(const std::string& name, const std::string& run, int64_t occasion, double now);
  // Starts and ends processes; to be called often. Returns those that have ended since the last call.
  std::vector<ChoreEnd> look(double now);
  // Of those whose last run failed: incidents "backup failed" and so on.
  std::vector<Trouble> troubles() const;
  bool is_done(const std::string& name, const std::string& run, int64_t occasion) const;

 private:
  struct State {
    Chore chore;
    std::optional<int64_t> wanted, done;
    double not_before = 0;
    std::string trouble;
  };
  void start(size_t index, double now);
  std::string trouble_of_process();

  double again_seconds_;
  std::vector<State> states_;
  std::unique_ptr<launch::WorkerGroup> process_;
  size_t running_ = 0;
  int64_t running_for_ = 0;
};

}  // namespace espalier::watch
