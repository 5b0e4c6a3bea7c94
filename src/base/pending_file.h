// Output files that appear whole or not at all, written by one process at a time.
//
//   clean_up_when_interrupted();                    // in the program, once
//   PendingFolder folder("out");                    // made where it does not exist
//   PendingFile file("out/a.json");                 // out/a.json.tmp, refused if another process writes it
//   write(file.temporary());
//   move_into_place({&file});
//   folder.keep();
//
// What is pending goes away with the object, and with the process where a signal ends it. What a killed process left is
// taken over by the next that writes the same file: the lock on it is the kernel's, and died with its owner.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace espalier {

class PendingFile {
 public:
  // Creates `path`.tmp, empty, and holds it. A UserError names it if another process does.
  explicit PendingFile(const std::filesystem::path& path);
  ~PendingFile();  // removes it, unless it is in its place
  PendingFile(PendingFile&& other) noexcept;
  PendingFile& operator=(PendingFile&&) = delete;

  // To be opened by its name for writing.
  const std::filesystem::path& temporary() const { return temporary_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  friend void move_into_place(const std::vector<PendingFile*>& files);

  std::filesystem::path path_, temporary_;
  int descriptor_ = -1;
};

// Writes all of it to the temporary file, and syncs that.
void write_synced(const PendingFile& file, std::string_view content);

// Renames the files, which are written and synced, and syncs their folders; a signal that would end the process waits
// until all are renamed.
void move_into_place(const std::vector<PendingFile*>& files);

// The folder `path`, made with those above it where they do not exist. Those that it made go away again, if they are
// empty, unless keep() was called.
class PendingFolder {
 public:
  explicit PendingFolder(const std::filesystem::path& path);
  ~PendingFolder();
  PendingFolder(PendingFolder&& other) noexcept;
  PendingFolder& operator=(PendingFolder&&) = delete;
  void keep();

 private:
  std::vector<std::filesystem::path> made_;  // from the outermost on
};

// "'a.bin' (1.2 GB) and 'a.idx' exist. ...": what of these would be replaced, and what to do. Empty if none exists.
std::string describe_existing(const std::vector<std::filesystem::path>& outputs);

// While one exists, a signal that clean_up_when_interrupted() handles waits: for steps that belong together.
class UninterruptedSteps {
 public:
  UninterruptedSteps();
  ~UninterruptedSteps();
  UninterruptedSteps(const UninterruptedSteps&) = delete;
  UninterruptedSteps& operator=(const UninterruptedSteps&) = delete;
};

// From here on SIGINT, SIGTERM and SIGHUP (those that are not ignored) remove what is pending, say so on stderr, and
// end the process as they would have.
void clean_up_when_interrupted();

}  // namespace espalier
