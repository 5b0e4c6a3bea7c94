#include "apps/watch/daemon.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "apps/become_engine.h"
#include "base/file.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/host_name.h"
#include "base/log.h"
#include "base/stop_signals.h"
#include "report/events.h"
#include "watch/blame.h"
#include "watch/scheduler.h"
#include "watch/verified.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;
using watch::RunSight;
using watch::Trouble;
using Json = nlohmann::ordered_json;
using Words = std::vector<std::string>;

constexpr auto kTick = std::chrono::milliseconds(100);
constexpr double kAlertAgainSeconds = 300, kSchedulerPatienceSeconds = 1800, kRecordsAgainSeconds = 120;

// Goes on while the machine sleeps, and never jumps.
double clock_seconds() {
  timespec now = {};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

fs::path state_file(const std::string& run) { return watch::watch_folder(run) / "incidents.json"; }

std::vector<watch::Quota> quotas_of(const WatchOptions& options, std::vector<Trouble>& troubles) {
  std::vector<watch::Quota> quotas;
  for (const std::string& run : options.runs)
    for (watch::Quota& quota : watch::quotas_of(run)) quotas.push_back(std::move(quota));
  if (options.quota_command.empty()) return quotas;
  try {
    const watch::CommandOutput output = watch::output_of(options.quota_command);
    if (output.exit_code != 0)
      throw UserError(concat("--quota-command: exit code ", output.exit_code, ": ", strip(output.errors)));
    for (watch::Quota& quota : watch::parse_quotas(output.text)) quotas.push_back(std::move(quota));
  } catch (const UserError& error) {
    troubles.push_back({"quota unknown", "", error.what()});
  }
  return quotas;
}

}  // namespace

WatchFindings look_once(const WatchOptions& options, watch::Judge& judge, double now, std::string& scheduler_trouble) {
  WatchFindings found;
  std::vector<Trouble> troubles;
  for (const std::string& run : options.runs) found.sight.runs.push_back(watch::see_run(run));
  Words folders = options.runs;
  folders.insert(folders.end(), options.other_folders.begin(), options.other_folders.end());
  for (const std::string& folder : folders) {
    if (const auto room = watch::room_of(folder))
      found.sight.rooms.push_back(*room);
    else
      troubles.push_back(
          {"folder away", folder, concat("'", folder, "' cannot be reached: is its file system mounted?")});
  }
  found.sight.quotas = quotas_of(options, troubles);
  if (!options.job_name.empty()) {
    try {
      found.jobs = watch::queued_jobs(options.scheduler, options.job_name);
      found.sight.is_queued = watch::any_waits(found.jobs) && std::none_of(found.jobs.begin(), found.jobs.end(),
                                                                           [](const auto& job) { return job.runs; });
      scheduler_trouble.clear();
    } catch (const UserError& error) {
      scheduler_trouble = error.what();
      found.sight.is_queued = true;  // nobody knows; the scheduler's own silence is told after a while
    }
  }
  found.troubles = judge.look(found.sight, now);
  for (const std::string& run : options.runs)
    for (Trouble& damaged : watch::damaged_checkpoints(run)) troubles.push_back(std::move(damaged));
  found.troubles.insert(found.troubles.end(), troubles.begin(), troubles.end());
  return found;
}

WatchDaemon::WatchDaemon(const WatchOptions& options)
    : options_(options),
      judge_(options.rules),
      chain_(options.chain),
      heartbeat_{.host = host_name(), .pid = ::getpid(), .interval_seconds = options.interval_seconds} {
  for (const std::string& run : options_.runs) {
    auto lock = store::RunLock::take_if_free(watch::watch_folder(run));
    if (!lock) {
      const auto other = watch::read_heartbeat(run);
      throw UserError(concat("'", run, "' is watched already",
                             other ? concat(", by process ", other->pid, " on ", other->host) : std::string()),
                      ExitCode::kCannotCreate);
    }
    locks_.push_back(std::move(*lock));
  }
  std::error_code error;
  if (const fs::path state = state_file(options_.runs[0]); fs::is_regular_file(state, error))
    incidents_.read_json(read_file(state));
  add_chores();
  if (options_.alert_command.empty())
    log_warning("without --alert-command incidents are only printed here and recorded in events.jsonl");
  else
    sender_ = std::make_unique<launch::AlertSender>(launch::AlertSenderOptions{
        .command = options_.alert_command, .on_failure = [this](const std::string& alert, const std::string& why) {
          log_warning("--alert-command did not accept an alert (", why, "), which is sent again in ",
                      format_duration(kAlertAgainSeconds), ": ", alert);
          const std::lock_guard lock(mutex_);
          undelivered_.push_back({alert, clock_seconds() + kAlertAgainSeconds});
        }});
}

WatchDaemon::~WatchDaemon() = default;

void WatchDaemon::run() {
  const StopSignals signals;
  set_awaited("the chore that runs");
  scheduler_well_ = clock_seconds();
  log_info("watching ", join(options_.runs, ", "), ", every ", format_duration(options_.interval_seconds));
  for (double next = clock_seconds(); !signals.received(); std::this_thread::sleep_for(kTick)) {
    const double now = clock_seconds();
    note_chores(now);
    if (now < next) continue;
    next = now + options_.interval_seconds;
    look(now);
  }
  beat(/*has_ended=*/true);
  log_info("no longer watching, as ", *signals.received(), " asks");
}

void WatchDaemon::look(double now) {
  report::write_late_events(report::Recorder::kOther);
  std::string scheduler_trouble;
  WatchFindings found = look_once(options_, judge_, now, scheduler_trouble);
  if (scheduler_trouble.empty()) scheduler_well_ = now;
  if (now - scheduler_well_ >= kSchedulerPatienceSeconds)
    found.troubles.push_back({"scheduler", "", scheduler_trouble});
  if (!options_.job_name.empty() && scheduler_trouble.empty())
    for (Trouble& trouble : look_at_jobs(found)) found.troubles.push_back(std::move(trouble));
  ask_for_job_records(now);
  look_for_blame(found.troubles);
  for (const watch::Chores* chores : {&chores_, &slow_chores_})
    for (Trouble& trouble : chores->troubles()) found.troubles.push_back(std::move(trouble));
  for (const Trouble& trouble : incidents_.update(found.troubles)) tell(trouble);
  remember();
  want_chores(found.sight.runs, now);
  send_again(now);
  beat(/*has_ended=*/false);
}

void WatchDaemon::tell(const Trouble& trouble) {
  const std::string run = trouble.run.empty() ? options_.runs[0] : trouble.run;
  log_warning(trouble.incident, ", ", run, ": ", trouble.detail);
  const bool is_of_run = std::find(options_.runs.begin(), options_.runs.end(), run) != options_.runs.end();
  report::record_event(is_of_run ? run : options_.runs[0], watch::own_event(trouble.incident), -1, trouble.detail);
  if (!sender_) return;
  const Json alert = {{"time", wall_seconds()},       {"host", host_name()},     {"by", "watch"}, {"run", run},
                      {"incident", trouble.incident}, {"detail", trouble.detail}};
  sender_->send(alert.dump(-1, ' ', false, Json::error_handler_t::replace));
}

void WatchDaemon::send_again(double now) {
  const std::lock_guard lock(mutex_);
  std::erase_if(undelivered_, [&](const Undelivered& waiting) {
    if (waiting.again > now) return false;
    sender_->send(waiting.alert);
    return true;
  });
}

void WatchDaemon::add_chores() {
  const std::string program = path_beside_this_program("espalier");
  for (const std::string& run : options_.runs) {
    const auto chore = [&](const std::string& name, const Words& command, const Words& words) {
      Words all = {program};
      all.insert(all.end(), command.begin(), command.end());
      all.push_back(run);
      all.insert(all.end(), words.begin(), words.end());
      return watch::Chore{.name = name, .run = run, .command = all, .log = watch::watch_folder(run) / (name + ".log")};
    };
    const auto add = [&](const std::string& name, const Words& command, const Words& words) {
      if (!words.empty()) chores_.add(chore(name, command, words));
    };
    add("backup", {"checkpoint", "backup"}, options_.backup_words);
    add("retention", {"checkpoint", "prune"}, options_.prune_words);
    watch::Chore journal = chore("journal", {"runs", "journal"}, {"--output", fs::path(run) / "journal.md"});
    journal.is_quiet = true;  // a full disk is told once, not by everything that cannot write
    chores_.add(journal);
    add("mirror", {"runs", "mirror"}, options_.mirror_words);
    if (options_.verify_words.empty()) continue;
    watch::Chore reading = chore("verify", {"checkpoint", "verify"}, options_.verify_words);
    reading.other_answer = static_cast<int>(ExitCode::kBadData);  // damaged: an incident of its own, by what is noted
    slow_chores_.add(reading);
  }
}

void WatchDaemon::want_chores(const std::vector<RunSight>& runs, double now) {
  for (const RunSight& run : runs) {
    const std::string folder = run.folder.string();
    const int64_t newest = run.newest_checkpoint;
    chores_.want("mirror", folder, static_cast<int64_t>(now / 60) / options_.mirror_minutes, now);
    if (run.story != 0) chores_.want("journal", folder, static_cast<int64_t>(run.story), now);
    if (newest < 0) continue;
    if (const auto next = options_.verify_words.empty() ? std::nullopt : watch::next_to_verify(folder);
        next && watch::is_due(*next, options_.verify_seconds, wall_seconds()))
      slow_chores_.want(
          "verify", folder,
          static_cast<int64_t>(hash64(&next->last, sizeof next->last, static_cast<uint64_t>(next->entry.step))), now);
    chores_.want("backup", folder, newest, now);
    // Nothing goes before its copy is safe.
    if (options_.backup_words.empty() || chores_.is_done("backup", folder, newest))
      chores_.want("retention", folder, newest, now);
  }
}

void WatchDaemon::note_chores(double now) {
  for (watch::Chores* chores : {&chores_, &slow_chores_})
    for (const watch::ChoreEnd& end : chores->look(now)) {
      if (end.trouble.empty())
        log_line(LogLevel::kDebug, concat(end.name, " of ", end.run, " is done"));
      else if (end.name == "journal")
        warn_once(end.trouble);
    }
}

std::vector<Trouble> WatchDaemon::look_at_jobs(const WatchFindings& found) {
  const RunSight& run = found.sight.runs[0];
  const watch::ChainStep step = chain_.look(run, found.jobs);
  if (step.submits) trouble_of_submission_ = submit(step, run);
  if (any_waits(found.jobs)) trouble_of_submission_.clear();
  std::vector<Trouble> troubles;
  if (!step.trouble.empty()) troubles.push_back({"no next job", run.folder.string(), step.trouble});
  if (!trouble_of_submission_.empty())
    troubles.push_back({"next job not submitted", run.folder.string(), trouble_of_submission_});
  return troubles;
}

// Why it failed; empty: it is queued.
std::string WatchDaemon::submit(const watch::ChainStep& step, const RunSight& run) {
  ask_records_at_ = 0;  // how the last job ended may be news
  ask_for_job_records(clock_seconds());
  Words without;
  for (const watch::Blame& blame : watch::machines_to_leave_out(watch::read_crashes(run.folder), job_records_))
    without.push_back(blame.host);
  try {
    const std::string id = watch::submit_next(options_.scheduler, options_.next_job, step.after, without);
    chain_.note_submitted(run);
    const std::string what =
        concat("job ", id, " continues the run", without.empty() ? "" : ", without ", join(without, ", "));
    log_info(what);
    report::record_event(run.folder, watch::own_event("next job"), run.step, what);
    return "";
  } catch (const UserError& error) {
    return error.what();
  }
}

// Those of one run: a job's name says which. Where no accounting is kept, the launchers' records are all there is.
void WatchDaemon::ask_for_job_records(double now) {
  if (options_.job_name.empty() || options_.scheduler != "slurm" || options_.runs.size() > 1 || now < ask_records_at_)
    return;
  ask_records_at_ = now + std::max(kRecordsAgainSeconds, options_.interval_seconds);
  try {
    job_records_ = watch::job_records(options_.job_name);
  } catch (const UserError& error) {
    warn_once(concat(error.what(), ": why jobs ended is known from the launchers only"));
  }
}

// RUN/watch/exclude.txt: a machine a line, with what speaks against it.
void WatchDaemon::look_for_blame(std::vector<Trouble>& troubles) {
  for (const std::string& run : options_.runs) {
    const std::vector<watch::Blame> blames = watch::machines_to_leave_out(watch::read_crashes(run), job_records_);
    std::string text;
    for (const watch::Blame& blame : blames) {
      text += blame.host + "\n";
      for (const std::string& line : blame.evidence) text += "# " + line.substr(0, line.find('\n')) + "\n";
      troubles.push_back(
          {"machine to leave out: " + blame.host, run,
           concat(blame.host, " is to blame for ",
                  format_counted(static_cast<int64_t>(blame.evidence.size()), "failure"), ": ", blame.evidence.back(),
                  ". Leave it out (espalier submit --exclude ", blame.host, ") and run espalier doctor there")});
    }
    const fs::path file = watch::watch_folder(run) / "exclude.txt";
    std::error_code error;
    if (text.empty() && !fs::exists(file, error)) continue;
    try {
      if (!fs::exists(file, error) || read_file(file) != text) write_file_atomically(file, text);
    } catch (const UserError& trouble) {
      warn_once(trouble.what());
    }
  }
}

void WatchDaemon::beat(bool has_ended) {
  ++heartbeat_.beat;
  heartbeat_.has_ended = has_ended;
  for (const std::string& run : options_.runs) {
    try {
      write_heartbeat(run, heartbeat_);
    } catch (const UserError& error) {
      warn_once(error.what());
    }
  }
}

void WatchDaemon::remember() {
  try {
    const std::string text = incidents_.to_json() + "\n";
    const fs::path file = state_file(options_.runs[0]);
    std::error_code error;
    if (!fs::exists(file, error) || read_file(file) != text) write_file_atomically(file, text);
  } catch (const UserError& error) {
    warn_once(error.what());
  }
}

}  // namespace espalier
