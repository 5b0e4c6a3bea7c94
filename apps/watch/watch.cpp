// espalier watch: months of runs without a person.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "apps/commands.h"
#include "apps/print_json.h"
#include "apps/watch/daemon.h"
#include "apps/watch/options.h"
#include "base/file.h"
#include "base/format.h"
#include "base/log.h"
#include "watch/heartbeat.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;
using watch::RunSight;

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string text_of(const RunSight& run) {
  const char* const words[] = {"nothing recorded yet", "running", "stopped", "finished", "failed"};
  std::string text = concat(run.folder.string(), ": ", words[static_cast<size_t>(run.last_word)]);
  if (run.step >= 0) text += concat(", step ", format_count(run.step));
  if (run.num_steps) text += concat(" of ", format_count(*run.num_steps));
  const auto left = run.seconds_left();
  if (left && *left > 0) text += concat(", ", format_duration(*left), " left");
  if (run.newest_checkpoint >= 0)
    text += concat(", saved step ", format_count(run.newest_checkpoint), " (",
                   format_bytes(static_cast<double>(run.checkpoint_bytes)), ")");
  return text + "\n";
}

std::string text_of(const watch::Room& room) {
  return concat(room.folder, ": ", format_bytes(room.free_bytes), " left of ", format_bytes(room.total_bytes),
                room.total_inodes > 0
                    ? concat(", ", format_count(static_cast<int64_t>(room.free_inodes)), " inodes left")
                    : std::string(),
                "\n");
}

Json to_json(const WatchFindings& found) {
  Json runs = Json::array(), rooms = Json::array(), troubles = Json::array();
  for (const RunSight& run : found.sight.runs) {
    Json entry = {{"run", run.folder.string()}, {"step", run.step}, {"newest_checkpoint", run.newest_checkpoint}};
    if (run.num_steps) entry["num_steps"] = *run.num_steps;
    if (const auto left = run.seconds_left()) entry["seconds_left"] = *left;
    runs.push_back(entry);
  }
  for (const watch::Room& room : found.sight.rooms)
    rooms.push_back({{"folder", room.folder}, {"free_bytes", room.free_bytes}, {"free_inodes", room.free_inodes}});
  for (const watch::Trouble& trouble : found.troubles)
    troubles.push_back({{"incident", trouble.incident}, {"run", trouble.run}, {"detail", trouble.detail}});
  return {{"runs", runs}, {"rooms", rooms}, {"troubles", troubles}};
}

int look_now(const WatchOptions& options) {
  watch::Judge judge(options.rules);
  std::string scheduler_trouble;
  WatchFindings found = look_once(options, judge, 0, scheduler_trouble);
  // What one look can know of a pulse is what the run itself says last, or that nobody answers for it.
  const watch::Patience& patience = options.rules.patience;
  for (watch::Trouble& trouble : judge.look(found.sight, std::max(patience.after_end, patience.after_death)))
    if (trouble.incident == "no progress") found.troubles.push_back(std::move(trouble));
  if (options.json) {
    print_json(to_json(found));
  } else {
    for (const RunSight& run : found.sight.runs) std::fputs(text_of(run).c_str(), stdout);
    for (const watch::Room& room : found.sight.rooms) std::fputs(text_of(room).c_str(), stdout);
    for (const watch::QueuedJob& job : found.jobs)
      std::printf(
          "job %s: %s%s\n", job.id.c_str(),
          job.runs    ? "running"
          : job.waits ? "queued"
                      : "ending",
          job.seconds_left ? concat(", ", format_duration(*job.seconds_left), " of its time left").c_str() : "");
    for (const watch::Trouble& trouble : found.troubles)
      std::printf("%s: %s\n", trouble.incident.c_str(), trouble.detail.c_str());
  }
  if (!scheduler_trouble.empty()) log_warning(scheduler_trouble);
  return found.troubles.empty() && scheduler_trouble.empty() ? 0 : static_cast<int>(ExitCode::kFailed);
}

// Whether the heart of the watch of this run beats; waits for a beat where the last is not fresh.
std::string trouble_of_watch(const std::string& run) {
  const auto first = watch::read_heartbeat(run);
  if (!first) return concat("no espalier watch has ever looked at '", run, "'");
  if (first->has_ended)
    return concat("espalier watch (process ", first->pid, " on ", first->host, ") was told to end: nobody watches '",
                  run, "'");
  watch::HeartbeatWatch heart;
  while (true) {
    const auto beat = watch::read_heartbeat(run);
    if (beat && (beat->beat != first->beat || beat->touched != first->touched)) return "";
    const std::string what = heart.look(beat, steady_seconds());
    if (!what.empty()) return what;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

// One alert for one death, however often cron asks.
bool is_news(const std::string& run, const std::string& what) {
  const auto heartbeat = watch::read_heartbeat(run);
  const std::filesystem::path file = watch::watch_folder(run) / "missed.txt";
  const std::string mark = what.empty() ? ""
                           : heartbeat  ? concat(heartbeat->host, " ", heartbeat->pid, " ", heartbeat->beat, "\n")
                                        : "none\n";
  std::error_code error;
  const std::string before = std::filesystem::is_regular_file(file, error) ? read_file(file) : "";
  if (mark == before) return false;
  (void)create_folders(file.parent_path());
  write_file_atomically(file, mark);
  return !mark.empty();
}

int check_watch(const WatchOptions& options) {
  std::unique_ptr<launch::AlertSender> sender;
  bool failed_to_send = false;
  if (!options.alert_command.empty())
    sender = std::make_unique<launch::AlertSender>(launch::AlertSenderOptions{
        .command = options.alert_command, .on_failure = [&](const std::string& alert, const std::string& why) {
          log_warning("--alert-command did not accept an alert (", why, "): ", alert);
          failed_to_send = true;
        }});
  Json troubles = Json::array();
  for (const std::string& run : options.runs) {
    const std::string what = trouble_of_watch(run);
    if (is_news(run, what) && sender)
      sender->send(Json{{"by", "watch --check"}, {"run", run}, {"incident", "watch died"}, {"detail", what}}.dump(
          -1, ' ', false, Json::error_handler_t::replace));
    if (what.empty()) continue;
    troubles.push_back({{"incident", "watch died"}, {"run", run}, {"detail", what}});
    if (!options.json) std::printf("%s\n", what.c_str());
  }
  sender.reset();
  // It is told again by the next check.
  if (failed_to_send)
    for (const std::string& run : options.runs) std::filesystem::remove(watch::watch_folder(run) / "missed.txt");
  if (options.json) print_json(Json{{"troubles", troubles}});
  return troubles.empty() ? 0 : static_cast<int>(ExitCode::kFailed);
}

}  // namespace

int watch_main(const std::vector<std::string>& arguments) {
  WatchOptions options;
  if (!read_watch_options(arguments, options)) return 0;
  if (options.check) return check_watch(options);
  if (options.once) return look_now(options);
  WatchDaemon(options).run();
  return 0;
}

}  // namespace espalier
