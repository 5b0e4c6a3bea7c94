#include "apps/watch/options.h"

#include <algorithm>
#include <filesystem>

#include "base/foreign_checkpoint.h"
#include "base/format.h"
#include "base/output_checks.h"
#include "report/run_reader.h"

namespace espalier {
namespace {

struct Rows {
  double patience_minutes = 30, ahead_minutes = 60, quota_percent = 85, verify_days = 7;
  std::string min_free, backup_to, backup_with, mirror_to, mirror_with, verify_rate = "100MiB";
  int64_t keep_last = 0, keep_every = 0, backup_every = 0;
  bool keep_spikes = false, keep_epochs = false, backup_weights_only = false, backup_tar = false, mirror_git = false;
};

void add_rows(OptionTable& table, WatchOptions& options, Rows& rows) {
  table.positional("RUN", options.runs, "folders of runs (--save)", 1, SIZE_MAX);
  table.group("looking");
  table.add("--interval", options.interval_seconds, "seconds between two looks").minimum(0.1).maximum(3600);
  table.add("--once", options.once, "one look: prints what it finds; exit code 1 if anything is wrong");
  table.add("--check", options.check,
            "looks whether an espalier watch is at work on these runs, as cron can; exit code 1 if not");
  table.add("--json", options.json, "what --once and --check find as one JSON object");
  table.group("alerts");
  table.add("--alert-command", options.alert_command,
            "for sh: gets each incident once, as a line of JSON on its standard input; tried again until it succeeds");
  table
      .add("--patience-minutes", rows.patience_minutes,
           "without a step, a record or a checkpoint, before the run has no pulse")
      .minimum(0.01);
  table.add("--min-free", rows.min_free, "what a file system must have left: 500GiB")
      .default_text("twice the newest checkpoint of all runs, 1 GiB at least");
  table.add("--also", options.other_folders, "folders whose file systems are looked at, too");
  table.add("--quota-percent", rows.quota_percent, "of a quota, from which on it is nearly used up")
      .minimum(1)
      .maximum(100);
  table.add("--quota-command", options.quota_command,
            "for sh: prints quotas that the kernel does not know, as lines NAME USED LIMIT");
  table.group("checkpoints");
  table.add("--keep-last", rows.keep_last, "retention, as of espalier checkpoint prune: keep the newest N").minimum(0);
  table.add("--keep-every", rows.keep_every, "keep steps divisible by N").minimum(0);
  table.add("--keep-spikes", rows.keep_spikes, "keep those before and after each spike");
  table.add("--keep-epochs", rows.keep_epochs, "keep those at ends of passes over the data (train --save-keep-epochs)");
  table.add("--backup-to", rows.backup_to, "copy new checkpoints to this folder, as espalier checkpoint backup");
  table.add("--backup-weights-only", rows.backup_weights_only, "without the optimizer");
  table.add("--backup-tar", rows.backup_tar, "one file for each checkpoint");
  table.add("--backup-every", rows.backup_every, "only steps divisible by N").minimum(0);
  table.add("--backup-with", rows.backup_with, "for sh: copies {source} to {target}, where cp cannot");
  table
      .add("--verify-days", rows.verify_days,
           "read each checkpoint again when it was last read or written so long ago, one at a time; 0: never")
      .minimum(0);
  table.add("--verify-rate", rows.verify_rate, "read no more than this a second for it");
  table.group("jobs");
  table.add("--job-name", options.job_name, "of the jobs that train these runs: says what is queued and its time left");
  table.add("--next-job", options.next_job, "script that continues the run: submitted when no other job will");
  table.add("--ahead-minutes", rows.ahead_minutes, "before the last job's end, when the next should be queued")
      .minimum(0);
  table.add("--scheduler", options.scheduler, "whose commands are used").choices({"slurm", "pbs"});
  table.group("mirrors");
  table.add("--mirror-to", rows.mirror_to, "copy records, logs and TensorBoard files to this folder, as runs mirror");
  table.add("--mirror-with", rows.mirror_with, "for sh: copies {source} to {target}, where cp cannot");
  table.add("--mirror-git", rows.mirror_git, "commit and push that folder, a git work tree");
  table.add("--mirror-minutes", options.mirror_minutes, "between two mirrors").minimum(1);
}

void set_words(const Rows& rows, WatchOptions& options) {
  auto& prune = options.prune_words;
  if (rows.keep_last > 0) prune.insert(prune.end(), {"--keep-last", std::to_string(rows.keep_last)});
  if (rows.keep_every > 0) prune.insert(prune.end(), {"--keep-every", std::to_string(rows.keep_every)});
  if (rows.keep_spikes) prune.push_back("--keep-spikes");
  if (rows.keep_epochs) prune.push_back("--keep-epochs");
  if (!prune.empty()) prune.insert(prune.end(), {"--verify", "newest", "--yes"});
  auto& backup = options.backup_words;
  if (!rows.backup_to.empty()) backup = {"--to", rows.backup_to};
  if (rows.backup_weights_only) backup.push_back("--weights-only");
  if (rows.backup_tar) backup.push_back("--tar");
  if (rows.backup_every > 0) backup.insert(backup.end(), {"--every", std::to_string(rows.backup_every)});
  if (!rows.backup_with.empty()) backup.insert(backup.end(), {"--with", rows.backup_with});
  if (rows.verify_days > 0) options.verify_words = {"--oldest", "--rate", rows.verify_rate};
  options.verify_seconds = 86400 * rows.verify_days;
  if (!rows.mirror_to.empty()) options.mirror_words = {"--to", rows.mirror_to};
  if (!rows.mirror_with.empty()) options.mirror_words.insert(options.mirror_words.end(), {"--with", rows.mirror_with});
  if (rows.mirror_git) options.mirror_words.push_back("--git");
}

void check_target(const std::string& target, const std::string& run, Problems& problems) {
  if (target.empty()) return;
  try {
    check_is_outside(target, run);
  } catch (const UserError& inside) {
    problems.add(inside.what());
  }
}

void check(const Rows& rows, const WatchOptions& options, Problems& problems) {
  if (rows.backup_to.empty() && !options.backup_words.empty())
    problems.add("--backup-weights-only, --backup-tar, --backup-every and --backup-with belong to --backup-to FOLDER");
  if (rows.mirror_to.empty() && !options.mirror_words.empty())
    problems.add("--mirror-git and --mirror-with belong to --mirror-to FOLDER");
  if (!options.next_job.empty() && options.job_name.empty())
    problems.add("--next-job needs --job-name, to see whether a job of the run is queued already");
  if (!options.next_job.empty() && options.runs.size() > 1)
    problems.add("--next-job continues one run, and ", options.runs.size(), " are watched: start one watch for each");
  if (options.check && options.once) problems.add("--check and --once are two different looks: give one of them");
  for (const std::string& run : options.runs) {
    std::error_code error;
    if (rows.backup_with.empty()) check_target(rows.backup_to, run, problems);
    if (rows.mirror_with.empty()) check_target(rows.mirror_to, run, problems);
    if (!std::filesystem::is_directory(run, error))
      problems.add("'", run, "' is no folder: name the folder of a run (--save), or create it for one that will begin");
    else if (std::filesystem::exists(std::filesystem::path(run) / "manifest.json", error) ||
             (!report::is_run_folder(run) && !report::find_runs({run}).empty()))
      problems.add(report::describe_no_run(run), ". Each run is watched by its own name");
    else if (const auto other = describe_foreign_checkpoint(run); other && !report::is_run_folder(run))
      problems.add("'", run, "' is not the folder of a run (--save): ", *other);
  }
}

}  // namespace

bool read_watch_options(const std::vector<std::string>& arguments, WatchOptions& options) {
  Rows rows;
  OptionTable table(
      "espalier watch",
      "Watches runs: whether they gain steps, room on their file systems, quotas, jobs that will continue "
      "them; keeps, copies and mirrors what they save. Tells a person of each incident once. Runs until "
      "it is told to stop; that it died is noticed by espalier launch --alert-command and by --check.");
  add_rows(table, options, rows);
  Problems problems;
  if (!table.parse(arguments, problems)) return false;
  if (!rows.min_free.empty()) {
    const auto bytes = parse_bytes(rows.min_free);
    if (!bytes) problems.add("--min-free: expected an amount such as 500GiB, found '", rows.min_free, "'");
    options.rules.least_free_bytes = static_cast<double>(bytes.value_or(0));
  }
  if (parse_bytes(rows.verify_rate).value_or(0) <= 0)
    problems.add("--verify-rate: expected an amount such as 100MiB, found '", rows.verify_rate, "'");
  watch::Patience& patience = options.rules.patience;
  patience.seconds = 60 * rows.patience_minutes;
  patience.after_end = std::min(patience.after_end, patience.seconds);
  patience.after_death = std::min(patience.after_death, patience.seconds);
  options.rules.most_quota_share = rows.quota_percent / 100;
  options.chain = {.ahead_seconds = 60 * rows.ahead_minutes, .may_submit = !options.next_job.empty()};
  set_words(rows, options);
  check(rows, options, problems);
  problems.raise();
  for (std::string& run : options.runs) run = std::filesystem::absolute(run).lexically_normal();
  return true;
}

}  // namespace espalier
