#include "watch/chores.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "launch/environment.h"

namespace espalier::watch {
namespace {

constexpr double kPatience = 10;  // seconds, for a command that is told to end

int open_log(const std::string& path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  return file >= 0 ? file : ::open("/dev/null", O_WRONLY | O_CLOEXEC);
}

}  // namespace

Chores::~Chores() {
  if (process_) process_->stop(SIGTERM, kPatience);
}

void Chores::add(Chore chore) { states_.emplace_back().chore = std::move(chore); }

void Chores::want(const std::string& name, const std::string& run, int64_t occasion, double now) {
  for (State& state : states_) {
    if (state.chore.name != name || state.chore.run != run || state.done == occasion) continue;
    if (state.wanted != occasion) state.not_before = now;  // news: not only later
    state.wanted = occasion;
  }
}

void Chores::start(size_t index, double now) {
  State& state = states_[index];
  running_ = index;
  running_for_ = *state.wanted;
  launch::Worker worker;
  worker.command = state.chore.command;
  worker.variables = launch::process_variables();
  worker.stderr_to = open_log(state.chore.log);
  worker.stdout_to = ::fcntl(worker.stderr_to, F_DUPFD_CLOEXEC, 0);
  worker.stderr_file = state.chore.log;
  try {
    process_ = std::make_unique<launch::WorkerGroup>(std::vector<launch::Worker>{worker});
  } catch (const UserError& error) {
    state.trouble = error.what();
    state.not_before = now + again_seconds_;
  }
}

std::string Chores::trouble_of_process() {
  if (!process_->any_failed()) return "";
  const launch::Failure& failure = process_->failures().front();
  if (failure.signal == 0 && failure.exit_code == states_[running_].chore.other_answer) return "";
  const std::string how =
      failure.signal != 0 ? concat("signal ", failure.signal) : concat("exit code ", failure.exit_code);
  return concat(join(states_[running_].chore.command, " "), ": ", how,
                failure.last_lines.empty() ? "" : ", " + strip(failure.last_lines));
}

std::vector<ChoreEnd> Chores::look(double now) {
  std::vector<ChoreEnd> ended;
  if (process_) {
    process_->reap();
    if (process_->num_running() > 0) return ended;
    State& state = states_[running_];
    state.trouble = trouble_of_process();
    process_.reset();
    if (state.trouble.empty()) {
      state.done = running_for_;
      if (state.wanted == running_for_) state.wanted.reset();
    } else {
      state.not_before = now + again_seconds_;
    }
    ended.push_back({state.chore.name, state.chore.run, state.trouble});
  }
  for (size_t index = 0; index < states_.size() && !process_; ++index)
    if (states_[index].wanted && states_[index].not_before <= now) start(index, now);
  return ended;
}

std::vector<Trouble> Chores::troubles() const {
  std::vector<Trouble> all;
  for (const State& state : states_)
    if (!state.trouble.empty() && !state.chore.is_quiet)
      all.push_back({state.chore.name + " failed", state.chore.run, state.trouble});
  return all;
}

bool Chores::is_done(const std::string& name, const std::string& run, int64_t occasion) const {
  for (const State& state : states_)
    if (state.chore.name == name && state.chore.run == run) return state.done == occasion;
  return false;
}

}  // namespace espalier::watch
