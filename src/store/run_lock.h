// Exclusive use of a run folder by one process, until it lets go or ends in any way.
//
//   const RunLock lock(folder);                     // creates the folder; UserError (kCannotCreate) names the holder
//   auto lock = RunLock::take_if_free(folder);      // nullopt when another process holds it
//
// The lock is the kernel's (flock on .lock), which ends with the process. File systems that have none (Lustre without
// -o flock, NFS without its lock service) get a file instead, .lock.owner: created so that only one can, it says who
// holds it, and a thread renews it every few seconds. On the holder's own machine a taker sees whether that process
// still lives. From another machine it waits to see the file renewed; one that is not renewed for
// kOwnerPatience no longer has an owner. Its age is measured by the file system's clock alone.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>

namespace espalier::store {

class OwnerFile;

class RunLock {
 public:
  explicit RunLock(const std::filesystem::path& run_folder);
  static std::optional<RunLock> take_if_free(const std::filesystem::path& run_folder);
  ~RunLock();
  RunLock(RunLock&& other) noexcept;
  RunLock& operator=(RunLock&& other) noexcept;
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  RunLock() = default;
  int descriptor_ = -1;
  std::unique_ptr<OwnerFile> owner_;  // where the kernel has no locks
};

}  // namespace espalier::store
