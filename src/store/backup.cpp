#include "store/backup.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/copy_command.h"
#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/output_checks.h"
#include "base/progress.h"
#include "base/shell.h"
#include "store/internal/plain_errors.h"
#include "store/manifest.h"
#include "store/step_reader.h"

namespace espalier::store {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int64_t kPieceBytes = int64_t{16} << 20;
constexpr const char* kCopyOwnerName = "backup_of.txt";

fs::path ledger_of(const fs::path& run) { return run / "backup" / "copies.jsonl"; }

// What was just written is to be read from the disk, not from this machine's memory.
void sync_and_forget(const fs::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return;  // reading it says why
  const int failed = ::fsync(file);
  const int reason = errno;
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  ::close(file);
  if (failed != 0)
    throw UserError(concat("cannot sync '", path.string(), "': ", std::strerror(reason)), ExitCode::kInputOutput);
}

void note_copy(const fs::path& run, const BackupRecord& record) {
  const Json line = {{"time", record.time},     {"step", record.step}, {"bytes", record.bytes},
                     {"target", record.target}, {"kind", record.kind}, {"manifest", hex64(record.manifest)}};
  const fs::path ledger = ledger_of(run);
  const std::string before = fs::exists(ledger) ? read_file(ledger) : "";
  write_file_atomically(ledger, before + line.dump() + "\n");
}

void copy_file(const fs::path& from, const fs::path& to, Progress& progress) {
  const InputFile source(from);
  OutputFile target(to);
  for (int64_t at = 0; at < source.size_bytes(); at += kPieceBytes) {
    const int64_t size = std::min(kPieceBytes, source.size_bytes() - at);
    target.write_from(source, at, size);
    progress.advance(size);
  }
  target.sync();
  target.close();
}

}  // namespace

Backup::Backup(fs::path run_folder, BackupTarget target, int num_threads)
    : run_(std::move(run_folder)), target_(std::move(target)), num_threads_(num_threads), lock_(run_ / "backup") {
  if (!target_.command.empty()) return;
  folder_ = fs::path(target_.place) / name_of_folder(run_);
  check_owner();
}

// The place itself must exist: a file system that is not mounted must not be written under.
void Backup::check_owner() const {
  std::error_code error;
  if (!fs::is_directory(target_.place, error))
    throw UserError(concat("--to '", target_.place, "' is no folder: create it, or mount its file system"),
                    ExitCode::kMissingInput);
  const std::string own = fs::absolute(run_).lexically_normal().string() + "\n";
  const fs::path owner = folder_ / kCopyOwnerName;
  if (fs::is_regular_file(owner, error)) {
    if (const std::string other = read_file(owner); other != own)
      throw UserError(
          concat("'", folder_.string(), "' holds copies of the run in '", strip(other), "', not of '", strip(own),
                 "': give another --to (or remove '", owner.string(), "' if the run was moved)"),
          ExitCode::kCannotCreate);
    return;
  }
  if (const std::error_code failed = create_folders(folder_); failed)
    throw UserError(concat("cannot create '", folder_.string(), "': ", failed.message()), ExitCode::kCannotCreate);
  write_file_atomically(owner, own);
}

std::vector<std::string> Backup::files_of(const StepEntry& entry) const {
  std::vector<std::string> files;
  for (const StoredFile& file : read_manifest(entry.folder).files)
    if (!target_.weights_only || !file.path.starts_with("optimizer-")) files.push_back(file.path);
  files.push_back(kManifestName);
  return files;
}

bool Backup::has_copy(const StepEntry& entry, const std::string& target) const {
  const uint64_t manifest = hash_of_file(entry.folder / kManifestName);
  if (target_.command.empty() && !fs::exists(target)) return false;
  const std::vector<BackupRecord> records = read_backups(run_);
  return std::any_of(records.begin(), records.end(), [&](const BackupRecord& record) {
    return record.target == target && record.kind == kind() && record.manifest == manifest;
  });
}

std::vector<BackupItem> Backup::missing(int64_t every) const {
  return with_plain_errors([&] {
    std::vector<BackupItem> items;
    for (const StepEntry& entry : list_steps(run_).complete) {
      if (every > 0 && entry.step % every != 0) continue;
      BackupItem item;
      item.entry = entry;
      const std::string name = entry.folder.filename().string() + (target_.is_tar ? ".tar" : "");
      item.target = target_.command.empty() ? (folder_ / name).string()
                                            : concat(target_.place, "/", name_of_folder(run_), "/", name);
      if (has_copy(entry, item.target)) continue;
      for (const std::string& file : files_of(entry)) {
        item.bytes += file_size_bytes(entry.folder / file);
        ++item.num_files;
      }
      items.push_back(item);
    }
    return items;
  });
}

void Backup::check_room(const BackupItem& item) const {
  struct statvfs space = {};
  if (::statvfs(folder_.c_str(), &space) != 0) return;
  const double left = static_cast<double>(space.f_frsize) * static_cast<double>(space.f_bavail);
  if (left < static_cast<double>(item.bytes))
    throw UserError(concat("'", folder_.string(), "' has ", format_bytes(left), " left, and ",
                           item.entry.folder.filename().string(), " takes ",
                           format_bytes(static_cast<double>(item.bytes)), ": free some space, or give another --to"),
                    ExitCode::kInputOutput);
  if (!target_.is_tar && space.f_files > 0 && static_cast<int64_t>(space.f_favail) < item.num_files)
    throw UserError(concat("'", folder_.string(), "' has ", space.f_favail, " inodes left, and ",
                           item.entry.folder.filename().string(), " takes ", item.num_files,
                           ": --tar makes one file of each checkpoint"),
                    ExitCode::kInputOutput);
}

void Backup::copy(const BackupItem& item) {
  const uint64_t manifest = hash_of_file(item.entry.folder / kManifestName);
  with_plain_errors([&] {
    if (!target_.command.empty()) return copy_by_command(item);
    check_room(item);
    if (target_.is_tar) return copy_to_tar(item);
    copy_to_folder(item);
  });
  note_copy(run_, {.time = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(),
                   .step = item.entry.step,
                   .bytes = item.bytes,
                   .target = item.target,
                   .kind = kind(),
                   .manifest = manifest});
}

void Backup::copy_to_folder(const BackupItem& item) {
  const fs::path partial = item.target + ".partial";
  // What is left of the copy of another checkpoint of this step is of no use.
  const fs::path manifest = item.entry.folder / kManifestName, mark = partial / ".source";
  const std::string source = hex64(hash_of_file(manifest)) + "\n";
  // Of a record that was lost: the copy itself is there.
  if (fs::exists(fs::path(item.target) / kManifestName) &&
      read_file(fs::path(item.target) / kManifestName) == read_file(manifest) &&
      verify_step(item.target, num_threads_, target_.weights_only).empty())
    return;
  if (fs::exists(partial) && (!fs::exists(mark) || read_file(mark) != source)) fs::remove_all(partial);
  fs::create_directories(partial);
  write_file_atomically(mark, source);
  Progress progress("copy " + item.entry.folder.filename().string(), item.bytes, Progress::Unit::kBytes);
  for (const std::string& file : files_of(item.entry)) {
    const fs::path from = item.entry.folder / file, to = partial / file;
    fs::create_directories(to.parent_path());
    const int64_t size = file_size_bytes(from);
    if (fs::exists(to) && file_size_bytes(to) == size)
      progress.advance(size);  // by a try before this one; it is verified all the same
    else
      copy_file(from, to, progress);
    sync_and_forget(to);
  }
  progress.finish();
  if (const auto problems = verify_step(partial, num_threads_, target_.weights_only); !problems.empty()) {
    fs::remove_all(partial);  // the next try begins anew
    throw UserError(
        concat("the copy of ", item.entry.folder.filename().string(), " is not intact: ", problems.front(),
               problems.size() > 1 ? concat(" (and ", problems.size() - 1, " more)") : "",
               ". If the checkpoint itself is (espalier checkpoint verify), suspect the disk of '", target_.place, "'"),
        ExitCode::kBadData);
  }
  fs::remove(mark);
  fsync_directory(partial);
  if (fs::exists(item.target)) {  // of a branch that the run has left
    fs::path aside = item.target + ".superseded";
    for (int number = 2; fs::exists(aside); ++number) aside = concat(item.target, ".superseded.", number);
    fs::rename(item.target, aside);
  }
  fs::rename(partial, item.target);
  fsync_directory(folder_);
}

// The files of a checkpoint as an archive.
void Backup::make_archive(const BackupItem& item, const fs::path& archive) const {
  std::string words;
  for (const std::string& file : files_of(item.entry))
    words += " " + shell_word(item.entry.folder.filename().string() + "/" + file);
  run_command(concat("tar --format=pax --owner=0 --group=0 --numeric-owner -cf ", shell_word(archive), " -C ",
                     shell_word(fs::absolute(run_).string()), words),
              run_ / "backup" / "tar.log");
}

// What is compared with the source byte by byte proves nothing of a damaged one.
void Backup::check_source(const BackupItem& item) const {
  const auto problems = verify_step(item.entry.folder, num_threads_, target_.weights_only);
  if (!problems.empty())
    throw UserError(
        concat(item.entry.folder.filename().string(), " is not copied, as it is damaged: ", problems.front()),
        ExitCode::kBadData);
}

void Backup::copy_to_tar(const BackupItem& item) {
  check_source(item);
  const std::string partial = item.target + ".partial";
  make_archive(item, partial);
  sync_and_forget(partial);
  run_command(concat("tar -df ", shell_word(partial), " -C ", shell_word(fs::absolute(run_).string()),
                     " --warning=no-timestamp"),
              run_ / "backup" / "tar.log");
  fs::rename(partial, item.target);
  fsync_directory(folder_);
}

void Backup::copy_by_command(const BackupItem& item) {
  check_source(item);
  const fs::path scratch = run_ / "backup" / "scratch";
  fs::remove_all(scratch);
  fs::create_directories(scratch);
  if (target_.is_tar) {
    const fs::path archive = scratch / fs::path(item.target).filename();
    make_archive(item, archive);
    put_by_command(archive, item.target);
  } else {
    Progress progress("copy " + item.entry.folder.filename().string(), item.bytes, Progress::Unit::kBytes);
    for (const std::string& file : files_of(item.entry)) {
      put_by_command(item.entry.folder / file, item.target + "/" + file);
      progress.advance(file_size_bytes(item.entry.folder / file));
    }
    progress.finish();
  }
  fs::remove_all(scratch);
}

// There and back again. A file that a try before this one has put there is known by RUN/backup/files.txt.
void Backup::put_by_command(const fs::path& source, const std::string& target) {
  const fs::path done = run_ / "backup" / "files.txt";
  const std::string mark = concat(hex64(hash_of_file(source)), " ", target, "\n");
  const std::string before = fs::exists(done) ? read_file(done) : "";
  if (!target_.is_tar && before.find(mark) != std::string::npos) return;
  CopyCommand(target_.command).put(source, target, run_ / "backup" / "scratch");
  write_file_atomically(done, before + mark);
}

std::vector<BackupRecord> read_backups(const fs::path& run_folder) {
  std::vector<BackupRecord> records;
  std::ifstream lines(ledger_of(run_folder));
  for (std::string line; std::getline(lines, line);) {
    const auto record = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!record.is_object()) continue;
    records.push_back({.time = record.value("time", 0.0),
                       .step = record.value("step", int64_t{0}),
                       .bytes = record.value("bytes", int64_t{0}),
                       .target = record.value("target", ""),
                       .kind = record.value("kind", ""),
                       .manifest = std::strtoull(record.value("manifest", "").c_str(), nullptr, 16)});
  }
  return records;
}

}  // namespace espalier::store
