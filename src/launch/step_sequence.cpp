#include "launch/step_sequence.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/shell.h"
#include "base/stop_signals.h"
#include "launch/environment.h"
#include "launch/worker_group.h"

namespace espalier::launch {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr const char* kFile = "steps.json";
constexpr auto kPause = std::chrono::milliseconds(20);

std::string line_of(const std::vector<std::string>& command) {
  std::string line;
  for (const std::string& word : command) line += (line.empty() ? "" : " ") + shell_word(word);
  return line;
}

// {"STEP": {"key", "done", "seconds", "command"}}; empty where there is none yet.
OrderedJson read_record(const fs::path& folder) {
  const fs::path file = folder / kFile;
  if (!fs::exists(file)) return OrderedJson::object();
  OrderedJson record = parse_json<OrderedJson>(read_file(file), file.string());
  for (const auto& [name, step] : record.items())
    if (!step.is_object() || !step.contains("key") || !step["key"].is_string() || !step.contains("done") ||
        !step["done"].is_boolean() || !step.contains("seconds") || !step["seconds"].is_number())
      throw UserError(concat(file.string(), ": ", name,
                             " is not {\"key\", \"done\", \"seconds\"}: not a file of steps. Give another folder."),
                      ExitCode::kBadData);
  return record;
}

void remember(const fs::path& folder, OrderedJson& record, const CommandStep& step, const StepState& state, bool done) {
  record[step.name] = {
      {"key", state.key}, {"done", done}, {"seconds", state.seconds}, {"command", line_of(step.command)}};
  write_file_atomically(folder / kFile, record.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n");
}

bool all_exist(const std::vector<fs::path>& outputs) {
  return std::all_of(outputs.begin(), outputs.end(), [](const fs::path& path) { return fs::exists(path); });
}

// What its stdout becomes: a file, or our stderr.
int open_output(const CommandStep& step) {
  const int descriptor = step.standard_output.empty()
                             ? ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3)
                             : ::open(step.standard_output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0)
    throw UserError(concat("cannot write '", step.standard_output.string(), "': ", std::strerror(errno)),
                    ExitCode::kCannotCreate);
  return descriptor;
}

// The exit code, 128 + signal of one that was killed.
int run_command(const CommandStep& step, const std::vector<std::string>& command, const StopSignals& signals) {
  Worker worker;
  worker.command = command;
  if (!step.program.empty()) worker.command.at(0) = step.program;
  worker.variables = process_variables();
  worker.stdout_to = open_output(step);
  WorkerGroup group({worker});
  for (bool told = false; group.num_running() > 0; group.reap()) {
    std::this_thread::sleep_for(kPause);
    if (told || !signals.received()) continue;
    group.send(SIGTERM);
    told = true;
  }
  if (group.all_well()) return 0;
  const Failure& failure = group.failures().at(0);
  return failure.signal != 0 ? 128 + failure.signal : failure.exit_code;
}

// "[3/9] scores, begun before, about 2 min; then about 14 min, not counting training"
std::string announcement(const std::vector<CommandStep>& steps, const std::vector<StepState>& states, size_t index) {
  double later = 0;
  std::vector<std::string> unknown;
  for (size_t other = index + 1; other < steps.size(); ++other) {
    const std::string& kind = steps[other].kind;
    if (states[other].kind == StepState::Kind::kDone || kind.empty()) continue;
    if (const auto seconds = expected_seconds(steps, states, other))
      later += *seconds;
    else if (kind != steps[index].kind && std::find(unknown.begin(), unknown.end(), kind) == unknown.end())
      unknown.push_back(kind);
  }
  std::string text = concat("[", index + 1, "/", steps.size(), "] ", steps[index].name);
  if (states[index].kind == StepState::Kind::kBegun) text += ", begun before";
  if (states[index].kind == StepState::Kind::kChanged) text += ", done again: what it is made from has changed";
  const auto own = steps[index].kind.empty() ? std::nullopt : expected_seconds(steps, states, index);
  if (own) text += ", about " + format_duration(*own);
  if (later > 0) text += concat("; then about ", format_duration(later));
  if (later > 0 && !unknown.empty()) text += ", not counting " + join(unknown, ", ");
  return text;
}

struct Runner {
  const fs::path& folder;
  const std::vector<CommandStep>& steps;
  std::vector<StepState> states;
  OrderedJson record;
  StopSignals signals;

  // False after a signal.
  bool run(size_t index) {
    const CommandStep& step = steps[index];
    StepState& state = states[index];
    const std::vector<std::string> command = prepare(step, state);
    if (command.empty()) return finish(step, state);
    log_info(announcement(steps, states, index));
    log_info("$ ", line_of(command));
    set_awaited(concat("step ", step.name));
    remember(folder, record, step, state, false);
    const auto start = Clock::now();
    const int code = run_command(step, command, signals);
    state.seconds += std::chrono::duration<double>(Clock::now() - start).count();
    const std::string why = code == 0 && step.unfinished ? step.unfinished() : "";
    if (code == 0 && why.empty()) return finish(step, state);
    remember(folder, record, step, state, false);
    if (signals.received()) return false;
    throw UserError(concat("step ", step.name, code != 0 ? concat(" ended with exit code ", code) : ": " + why,
                           ". What is done is kept: the same command goes on from here."),
                    code != 0 ? static_cast<ExitCode>(code) : ExitCode::kFailed);
  }

  // The command that is to run, or none where an earlier attempt had just done it. Removes what has to be made anew.
  std::vector<std::string> prepare(const CommandStep& step, StepState& state) const {
    const bool goes_on = state.kind == StepState::Kind::kBegun && step.standard_output.empty();
    if (goes_on && all_exist(step.outputs) && (!step.unfinished || step.unfinished().empty())) return {};
    std::vector<std::string> command = goes_on && step.resume ? step.resume() : std::vector<std::string>();
    if (!command.empty()) return command;
    if (!goes_on || step.resume)
      for (const auto* paths : {&step.outputs, &step.leftovers})
        for (const fs::path& path : *paths) fs::remove_all(path);
    return step.command;
  }

  bool finish(const CommandStep& step, StepState& state) {
    for (const fs::path& output : step.outputs)
      ESPALIER_CHECK(fs::exists(output), "step ", step.name, " has not made ", output.string());
    state.kind = StepState::Kind::kDone;
    remember(folder, record, step, state, true);
    return !signals.received();
  }
};

}  // namespace

std::vector<StepState> states_of(const fs::path& folder, const std::vector<CommandStep>& steps,
                                 std::vector<std::string>& problems) {
  const OrderedJson record = read_record(folder);
  std::vector<StepState> states;
  std::map<std::string, std::string> keys;
  for (const CommandStep& step : steps) {
    std::string facts = concat(step.name, "\n", line_of(step.command), "\n", step.inputs);
    for (const std::string& earlier : step.after) facts += "\n" + keys.at(earlier);
    StepState state{.key = hex64(hash64(facts))};
    keys[step.name] = state.key;
    const auto known = record.find(step.name);
    if (known == record.end()) {
      for (const fs::path& output : step.outputs)
        if (fs::exists(output))
          problems.push_back(concat("'", output.string(), "' exists, and no step of ", (folder / kFile).string(),
                                    " has made it; move it away, or give another folder"));
    } else if ((*known)["key"] != state.key) {
      state.kind = StepState::Kind::kChanged;
    } else if ((*known)["done"] == true && all_exist(step.outputs)) {
      state.kind = StepState::Kind::kDone;
      state.seconds = (*known)["seconds"];
    } else {
      state.kind = StepState::Kind::kBegun;
      state.seconds = (*known)["seconds"];
    }
    states.push_back(state);
  }
  return states;
}

std::optional<double> expected_seconds(const std::vector<CommandStep>& steps, const std::vector<StepState>& states,
                                       size_t of) {
  double seconds = 0, amount = 0;
  for (size_t index = 0; index < steps.size(); ++index) {
    if (steps[index].kind != steps[of].kind || states[index].kind != StepState::Kind::kDone) continue;
    if (states[index].seconds <= 0) continue;  // it had just been done when it was interrupted
    seconds += states[index].seconds;
    amount += steps[index].amount;
  }
  if (amount <= 0) return std::nullopt;
  return seconds * steps[of].amount / amount;
}

bool run_steps(const fs::path& folder, const std::vector<CommandStep>& steps) {
  std::vector<std::string> strange;
  Runner runner{folder, steps, states_of(folder, steps, strange), read_record(folder), {}};
  if (!strange.empty()) throw UserError(join(strange, "\n"), ExitCode::kCannotCreate);
  for (size_t index = 0; index < steps.size(); ++index) {
    if (runner.states[index].kind == StepState::Kind::kDone) {
      log_info("[", index + 1, "/", steps.size(), "] ", steps[index].name, ": done before");
      continue;
    }
    if (!runner.run(index)) {
      log_info("stopped at step ", steps[index].name, ": the same command goes on from here");
      return false;
    }
  }
  return true;
}

}  // namespace espalier::launch
