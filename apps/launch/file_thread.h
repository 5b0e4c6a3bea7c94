// What the launcher does with files every half second, on a thread of its own: its main one must not wait for a file
// system, which may hold a thread for ever.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

namespace espalier {

class FileThread {
 public:
  // `look` owns what it uses: it may still run when this object is gone.
  explicit FileThread(std::function<void()> look);
  ~FileThread() { *ends_ = true; }
  FileThread(const FileThread&) = delete;
  FileThread& operator=(const FileThread&) = delete;

 private:
  std::shared_ptr<std::atomic<bool>> ends_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace espalier
