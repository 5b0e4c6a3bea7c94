#include "apps/checkpoint/backup.h"

#include <cstdio>
#include <filesystem>

#include "apps/print_json.h"
#include "base/copy_command.h"
#include "base/format.h"
#include "base/log.h"
#include "base/options.h"
#include "base/output_checks.h"
#include "base/thread_pool.h"
#include "report/run_reader.h"
#include "store/backup.h"
#include "store/run_folder.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

std::string when(double seconds) {
  const auto whole = static_cast<std::time_t>(seconds);
  std::tm parts{};
  gmtime_r(&whole, &parts);
  char text[64];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &parts)};
}

void list_copies(const std::string& run, bool json) {
  Json copies = Json::array();
  for (const store::BackupRecord& record : store::read_backups(run)) {
    copies.push_back({{"step", record.step},
                      {"kind", record.kind},
                      {"bytes", record.bytes},
                      {"target", record.target},
                      {"time", record.time}});
    if (!json)
      std::printf("step %-10s  %-7s  %10s  %s  %s\n", format_count(record.step).c_str(), record.kind.c_str(),
                  format_bytes(static_cast<double>(record.bytes)).c_str(), when(record.time).c_str(),
                  record.target.c_str());
  }
  if (json) print_json(Json{{"run", run}, {"copies", copies}});
  if (!json && copies.empty()) std::printf("'%s' has no copies\n", run.c_str());
}

Json to_json(const store::BackupItem& item) {
  return {{"step", item.entry.step}, {"bytes", item.bytes}, {"files", item.num_files}, {"target", item.target}};
}

}  // namespace

int backup_checkpoints_main(const std::vector<std::string>& arguments) {
  std::vector<std::string> runs;
  store::BackupTarget target;
  int64_t every = 0, workers = num_usable_cores();
  bool lists = false, dry_run = false, json = false;
  OptionTable table(
      "espalier checkpoint backup",
      "Copies complete checkpoints of a run that have no copy yet to another file system, reads every copy "
      "back and compares the checksums. Interrupted, the same command goes on where it was.");
  table.positional("RUN_FOLDER", runs, "folder of a run (--save)", 1, 1);
  table.add("--to", target.place, "folder that gets RUN_NAME/step_N; with --with what the command takes for one");
  table.add("--weights-only", target.weights_only, "without the optimizer: serves generation and finetuning");
  table.add("--tar", target.is_tar, "one file for each checkpoint, step_N.tar, where inodes are scarce");
  table.add("--every", every, "only steps divisible by N").minimum(0);
  table.add(
      "--with", target.command,
      "for sh, with {source} and {target}: copies a file where cp cannot ('rclone copyto {source} {target}'); it is "
      "called again with both exchanged, and what comes back must be equal");
  table.add("--list", lists, "only show the copies that were made");
  table.add("--dry-run", dry_run, "only show what would be copied, and where to");
  table.add("--workers", workers, "threads that verify").minimum(1).maximum(1024);
  table.add("--json", json, "one JSON object");
  Problems problems;
  if (!table.parse(arguments, problems)) return 0;
  if (target.place.empty() && !lists) problems.add("--to is missing: where the copies go");
  CopyCommand::check(target.command, problems);
  problems.raise();
  if (const std::string other = report::describe_no_run(runs[0]); !other.empty())
    throw UserError(other, ExitCode::kMissingInput);
  if (target.command.empty() && !lists) check_is_outside(target.place, runs[0]);
  if (lists) {
    list_copies(runs[0], json);
    return 0;
  }
  store::Backup backup(runs[0], target, static_cast<int>(workers));
  const std::vector<store::BackupItem> items = backup.missing(every);
  Json copied = Json::array();
  for (const store::BackupItem& item : items) {
    if (!dry_run) backup.copy(item);
    copied.push_back(to_json(item));
    if (!json)
      std::printf("%s %s (%s, %s) to %s\n", dry_run ? "would copy" : "copied and verified",
                  item.entry.folder.filename().c_str(), format_bytes(static_cast<double>(item.bytes)).c_str(),
                  format_counted(item.num_files, "file").c_str(), item.target.c_str());
  }
  if (json) print_json(Json{{"run", runs[0]}, {dry_run ? "would_copy" : "copied", copied}});
  if (!json && items.empty())
    std::printf("%s\n", store::list_steps(runs[0]).complete.empty() ? "the run has no checkpoint yet"
                                                                    : "every checkpoint has its copy");
  return 0;
}

}  // namespace espalier
