// Locks between processes, of one machine or of several that share a folder: the kernel's (flock), which die with their
// owner. A file system without them makes every lock succeed, with a warning.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace espalier::curate {

// "HOST-ID": of all that work in a shared folder.
std::string process_name();

class FileLock {
 public:
  enum class Kind { kAlone, kShared };

  // Nothing where others have it. The file is made where it does not exist, and stays; it holds the name of the process
  // that had it alone last.
  static std::optional<FileLock> try_take(const std::filesystem::path& file, Kind kind = Kind::kAlone);
  // Waits, however long; after two seconds it says for whom.
  static FileLock take(const std::filesystem::path& file);

  ~FileLock();
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;

 private:
  explicit FileLock(int descriptor) : descriptor_(descriptor) {}
  void note_owner() const;
  int descriptor_ = -1;
};

}  // namespace espalier::curate
