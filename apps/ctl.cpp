// espalier ctl: asks something of a run that is under way, by the socket in its folder.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <set>
#include <thread>

#include "apps/commands.h"
#include "apps/print_json.h"
#include "apps/runs/commands.h"
#include "base/format.h"
#include "base/log.h"
#include "base/options.h"
#include "launch/control_socket.h"

namespace espalier {
namespace {

using launch::ControlMessage;
using launch::ControlOutcome;
using launch::ControlPlace;
using Words = std::vector<std::string>;

const Words kCtlCommands = {"status", "save", "stop", "kill", "dump", "log-level", "pause", "resume"};
constexpr double kSecondsToAnswer = 30;
using Clock = std::chrono::steady_clock;
constexpr auto kTimeToOpen = std::chrono::seconds(2);
constexpr auto kLookForSocket = std::chrono::milliseconds(50);

std::string hosts_of(const std::vector<ControlPlace>& places) {
  std::set<std::string> hosts;
  for (const ControlPlace& place : places) hosts.insert(place.host);
  return join({hosts.begin(), hosts.end()}, ", ");
}

// Why nobody answers for this folder.
[[noreturn]] void no_run(const std::string& folder, bool has_stale) {
  const report::Run run = report::read_run(folder);  // refuses what is not a run's
  const std::string name = concat("the run in '", folder, "' ");
  if (run.status == report::RunStatus::kRunning && !has_stale)
    throw UserError(concat(name, "cannot be controlled: it has not started to train yet, or its messages say why"));
  if (run.status == report::RunStatus::kRunning || run.status == report::RunStatus::kDied)
    throw UserError(concat(name, "has died: the process that answered for it was killed",
                           has_stale ? ", and its socket is left over (the next run in this folder replaces it)" : ""));
  throw UserError(
      concat(name, run.status == report::RunStatus::kEmpty ? "has recorded nothing and is not running" : "has ended: ",
             run.status == report::RunStatus::kEmpty ? "" : report::to_string(run.status),
             run.status_detail.empty() ? "" : ", " + run.status_detail));
}

std::vector<ControlPlace> places_here(const std::string& folder) {
  std::vector<ControlPlace> places = launch::control_places(folder);
  const std::vector<ControlPlace> all = places;
  std::erase_if(places, [](const ControlPlace& place) { return !place.is_here; });
  if (places.empty() && !all.empty())
    throw UserError(concat("the run in '", folder, "' is on other machines: ", hosts_of(all), ". Ask it there."));
  return places;
}

std::string text_of(const ControlMessage& value) {
  if (value.is_null()) return "-";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string status_text(const ControlMessage& status) {
  std::vector<Words> rows = {{"rank", "host", "process", "state", "phase", "step", "micro-batch", "for", "waits for"}};
  for (const ControlMessage& rank : status["ranks"]) {
    const auto cell = [&](const char* key) { return rank.contains(key) ? text_of(rank[key]) : "-"; };
    const std::string since = rank.contains("seconds_since_progress")
                                  ? format_printf("%.1f s", rank["seconds_since_progress"].get<double>())
                                  : "-";
    rows.push_back({cell("rank"), cell("host"), cell("pid"), cell("state"), cell("phase"), cell("step"),
                    cell("micro_batch"), since, cell("waits_for")});
  }
  const auto here = static_cast<int64_t>(status["ranks"].size()), all = status["world_size"].get<int64_t>();
  return concat("phase ", text_of(status["phase"]), ", step ", text_of(status["step"]),
                status["paused"].get<bool>() ? ", paused or about to" : "",
                here < all ? concat("; ", here, " of ", all, " ranks are on this machine") : "", "\n",
                aligned(rows, {0, 2, 5, 6, 7}));
}

void show(const std::string& command, const ControlMessage& answer, bool json) {
  if (json) return print_json(answer);
  if (command == "status") {
    std::fputs(status_text(answer).c_str(), stdout);
  } else if (command == "dump") {
    std::fputs(answer["stacks"].get<std::string>().c_str(), stdout);
    const auto file = answer["file"].get<std::string>();
    if (!file.empty()) log_info("written to ", file);
  } else {
    std::printf("%s\n", text_of(answer["said"]).c_str());
  }
}

// The first that answers: of several launchers on this machine the one with the first ranks. What answers for a run
// opens its socket a moment after the run's first words in its folder.
ControlMessage ask(const std::string& folder, const ControlMessage& request) {
  for (const auto deadline = Clock::now() + kTimeToOpen;; std::this_thread::sleep_for(kLookForSocket)) {
    std::string trouble;
    bool has_stale = false;
    for (const ControlPlace& place : places_here(folder)) {
      const launch::ControlReply reply = launch::ask_control(place, request, kSecondsToAnswer);
      if (reply.outcome == ControlOutcome::kAnswered) return reply.message;
      has_stale = has_stale || reply.outcome == ControlOutcome::kStale;
      if (reply.outcome == ControlOutcome::kTrouble) trouble = reply.trouble;
    }
    if (!trouble.empty()) throw UserError(trouble);
    if (Clock::now() > deadline || report::read_run(folder).status != report::RunStatus::kRunning)
      no_run(folder, has_stale);
  }
}

ControlMessage request_of(const Words& words) {
  Problems problems;
  const std::string& command = words[1];
  if (std::find(kCtlCommands.begin(), kCtlCommands.end(), command) == kCtlCommands.end()) {
    if (std::find(kCtlCommands.begin(), kCtlCommands.end(), words[0]) != kCtlCommands.end())
      throw UserError(concat("the run comes before the command: espalier ctl ", command, " ", words[0]),
                      ExitCode::kUsage);
    // The word that is no folder was meant as the command.
    std::error_code error;
    const std::string& meant =
        !std::filesystem::exists(words[0], error) && std::filesystem::exists(command, error) ? words[0] : command;
    const Words near = nearest_names(meant, kCtlCommands);
    problems.add("unknown command ", meant, near.empty() ? "" : "; did you mean " + join(near, " or ") + "?",
                 near.empty() ? "; " : " ", "the commands of espalier ctl RUN are ", join(kCtlCommands, ", "));
  }
  const Words levels = {"quiet", "warning", "info", "debug"};
  const bool takes_level = command == "log-level";
  if (takes_level && (words.size() < 3 || std::find(levels.begin(), levels.end(), words[2]) == levels.end()))
    problems.add("log-level takes one of ", join(levels, ", "));
  if (!takes_level && words.size() > 2) problems.add(command, " takes no further argument: ", words[2]);
  problems.raise();
  ControlMessage request = {{"command", command}};
  if (takes_level) request["level"] = words[2];
  return request;
}

}  // namespace

int ctl_main(const Words& arguments) {
  Words words;
  bool json = false;
  OptionTable table(
      "espalier ctl",
      "Controls a run in progress, on a machine that it runs on. status: where each rank is. save: a checkpoint after "
      "this step. stop: save and end, as SIGTERM. kill: end at once. dump: the ranks' stacks. pause, resume: all ranks "
      "wait between two steps, and continue. log-level LEVEL: what the run prints from its next step on.");
  table.positional("RUN COMMAND", words,
                   "folder of the run (--save); status, save, stop, kill, dump, log-level LEVEL, "
                   "pause or resume",
                   2, 3);
  table.add("--json", json, "the answer as one JSON object");
  if (!table.parse(arguments)) return 0;
  const ControlMessage request = request_of(words);
  std::error_code error;
  if (!std::filesystem::is_directory(words[0], error))
    throw UserError(concat("'", words[0], "' is not a folder of a run: there is no such folder"),
                    ExitCode::kMissingInput);
  const ControlMessage answer = ask(words[0], request);
  if (answer.contains("error")) throw UserError(answer["error"].get<std::string>());
  show(words[1], answer, json);
  return 0;
}

}  // namespace espalier
