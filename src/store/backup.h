// Copies of a run's checkpoints on another file system, or in a store that a command of the user reaches: verified
// after the copy, resumed where they were interrupted, and recorded with the run.
//
//   Backup backup(run, {.place = "/archive"});
//   for (const BackupItem& item : backup.missing({})) backup.copy(item);
//
// In a folder the copy of /runs/a's step 1000 is /archive/a/step_00001000, and /archive/a a folder of checkpoints as
// the run's own is: --load takes it. As an archive it is /archive/a/step_00001000.tar, of GNU tar. Where a command
// copies, the names are the same, and files are copied one by one, the manifest last.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "store/run_folder.h"

namespace espalier::store {

struct BackupTarget {
  std::string place;  // a folder; with a command, what it takes as the beginning of a target ("remote:bucket")
  bool weights_only = false, is_tar = false;
  std::string command;  // for sh, with {source} and {target}; it must also copy back, with both exchanged
};

struct BackupItem {
  StepEntry entry;
  int64_t bytes = 0, num_files = 0;
  std::string target;
};

// A copy that was verified.
struct BackupRecord {
  double time = 0;  // seconds since 1970
  int64_t step = 0, bytes = 0;
  std::string target, kind;  // "full" or "weights"
  uint64_t manifest = 0;     // checksum of manifest.json: which of several checkpoints of a step
};

class Backup {
 public:
  // Holds RUN/backup for itself. A UserError where another process has it, or where the copies of another run are in
  // the place.
  Backup(std::filesystem::path run_folder, BackupTarget target, int num_threads);

  // Of the complete checkpoints those without such a copy: all, of steps divisible by `every` where that is not 0.
  std::vector<BackupItem> missing(int64_t every) const;
  // A UserError says what failed; what was copied until then is used by the next try.
  void copy(const BackupItem& item);

 private:
  void copy_to_folder(const BackupItem& item);
  void copy_to_tar(const BackupItem& item);
  void copy_by_command(const BackupItem& item);
  void put_by_command(const std::filesystem::path& source, const std::string& target);
  void make_archive(const BackupItem& item, const std::filesystem::path& archive) const;
  void check_source(const BackupItem& item) const;
  void check_owner() const;
  void check_room(const BackupItem& item) const;
  std::vector<std::string> files_of(const StepEntry& entry) const;  // the manifest last
  std::string kind() const { return target_.weights_only ? "weights" : "full"; }
  bool has_copy(const StepEntry& entry, const std::string& target) const;

  std::filesystem::path run_, folder_;  // folder_: of the copies, where it is one
  BackupTarget target_;
  int num_threads_;
  RunLock lock_;
};

// The copies that RUN/backup/copies.jsonl records, in order.
std::vector<BackupRecord> read_backups(const std::filesystem::path& run_folder);

}  // namespace espalier::store
