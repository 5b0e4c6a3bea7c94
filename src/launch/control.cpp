#include "launch/control.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/host_name.h"
#include "launch/internal/process_state.h"
#include "launch/stacks.h"

namespace espalier::launch {
namespace {

struct NamedLevel {
  const char* name;
  LogLevel level;
};
constexpr NamedLevel kLevels[] = {{"quiet", LogLevel::kQuiet},
                                  {"warning", LogLevel::kWarning},
                                  {"info", LogLevel::kInfo},
                                  {"debug", LogLevel::kDebug}};

LogLevel level_named(const std::string& name) {
  for (const NamedLevel& level : kLevels)
    if (name == level.name) return level.level;
  throw UserError(concat("'", name, "' is not a level; use quiet, warning, info or debug"), ExitCode::kUsage);
}

// In one word; what the rank waits for is a field of its own.
std::string state_in_a_word(const Sight& sight, pid_t pid) {
  if (pid < 0) return "ended";
  if (internal::state_of(pid).state == 'T') return "stopped";
  if (!sight.is_open) return "not begun";
  return sight.waiting == Waiting::kNothing ? "works" : "waits";
}

ControlMessage row_of(int64_t rank, pid_t pid, const Sight& sight) {
  ControlMessage row = {{"rank", rank}, {"host", host_name()}, {"pid", nullptr}};
  if (pid >= 0) row["pid"] = pid;
  row["state"] = state_in_a_word(sight, pid);
  if (!sight.is_open) return row;
  row["phase"] = to_string(sight.phase);
  row["step"] = sight.step;
  row["micro_batch"] = sight.micro_batch < 0 ? ControlMessage() : ControlMessage(sight.micro_batch);
  row["waits_for"] = sight.waiting == Waiting::kNothing ? ControlMessage() : ControlMessage(sight.waits_for);
  row["seconds_since_progress"] = sight.seconds_since;
  return row;
}

ControlAnswer said(const std::string& text) { return {{{"said", text}}, {}}; }

}  // namespace

Control::Control(ControlOptions options)
    : options_(std::move(options)),
      pids_(static_cast<size_t>(options_.num_local_ranks), -1),
      server_({.folder = [this] { return options_.board.sight(0).folder; },
               .node = options_.node,
               .handler = [this](const ControlMessage& request) { return answer(request); }}) {}

void Control::set_pids(const std::vector<pid_t>& pids) {
  const std::lock_guard lock(mutex_);
  pids_ = pids;
}

std::vector<pid_t> Control::pids() const {
  const std::lock_guard lock(mutex_);
  return pids_;
}

void Control::need_first_rank(const std::string& command) const {
  if (options_.first_rank == 0) return;
  throw UserError(concat(command, " is for the whole run: ask on ", options_.first_host, ", where its first rank is"));
}

ControlAnswer Control::answer(const ControlMessage& request) const {
  if (!request.is_object() || !request.contains("command") || !request["command"].is_string())
    throw UserError("the request names no command");
  const auto command = request["command"].get<std::string>();
  const WhereaboutsBoard& board = options_.board;
  if (command == "status") return {status(), {}};
  if (command == "dump") return {dump(), {}};
  if (command == "kill") {
    const size_t others = static_cast<size_t>(options_.world_size - options_.num_local_ranks);
    return {{{"said", concat("ends ", options_.num_local_ranks, options_.num_local_ranks == 1 ? " rank" : " ranks",
                             " at once; what is not saved is lost",
                             others > 0 ? "; the launchers of other machines take it for a failure" : "")}},
            options_.kill};
  }
  const bool pauses = command == "pause", resumes = command == "resume";
  if (command != "save" && command != "stop" && command != "log-level" && !pauses && !resumes)
    throw UserError(concat("this run knows no command ", command));
  need_first_rank(command);
  if (command == "stop") return {{{"said", "the run saves after the step in progress, then ends"}}, options_.stop};
  if (command == "save") {
    board.ask_for_save(0);
    return said("the run saves after the step in progress, then continues");
  }
  if (command == "log-level") {
    board.ask_for_log_level(0, level_named(request.value("level", "")));
    return said("the run logs at this level from its next step on");
  }
  const bool was_paused = board.wishes(0).pause;
  board.ask_for_pause(0, pauses);
  if (was_paused == pauses) return said(pauses ? "it had already been asked to pause" : "it was not paused");
  return said(pauses ? "all ranks pause together after the step in progress, until resume" : "the run continues");
}

ControlMessage Control::status() const {
  const std::vector<pid_t> pids = this->pids();
  ControlMessage ranks = ControlMessage::array();
  const Sight* slowest = nullptr;
  std::vector<Sight> sights;
  for (size_t at = 0; at < pids.size(); ++at) sights.push_back(options_.board.sight(static_cast<int64_t>(at)));
  for (size_t at = 0; at < pids.size(); ++at) {
    ranks.push_back(row_of(options_.first_rank + static_cast<int64_t>(at), pids[at], sights[at]));
    if (sights[at].is_open && pids[at] >= 0 && (slowest == nullptr || sights[at].step < slowest->step))
      slowest = &sights[at];
  }
  ControlMessage status;
  status["phase"] = slowest == nullptr ? ControlMessage() : ControlMessage(to_string(slowest->phase));
  status["step"] = slowest == nullptr ? ControlMessage() : ControlMessage(slowest->step);
  status["paused"] = options_.board.wishes(0).pause;
  status["world_size"] = options_.world_size;
  status["ranks"] = std::move(ranks);
  return status;
}

ControlMessage Control::dump() const {
  const std::vector<RankStacks> stacks = collect_stacks(options_.board, options_.first_rank, pids(), Threads::kMain);
  return {{"file", write_stacks(options_.board.sight(0).folder, "asked for by espalier ctl", stacks)},
          {"summary", stacks_summary(stacks)},
          {"stacks", stacks_text(stacks)}};
}

}  // namespace espalier::launch
