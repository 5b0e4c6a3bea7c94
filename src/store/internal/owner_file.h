// A lock that needs nothing of the file system but that a file is created by one only.
//
// .lock.owner holds the machine's boot, the space of process numbers, the process and its start, and a random token. A
// holder on the same boot and in the same space is looked up in /proc; any other must have renewed the file lately.
// Of several takers that find a dead holder one alone may remove its file: who creates a file named after that holder.
#pragma once

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace espalier::store {

struct OwnerTimes {
  std::chrono::milliseconds renew = std::chrono::seconds(10);
  std::chrono::milliseconds patience = std::chrono::seconds(90);  // with a file that is not renewed
};

// Who holds a file, one "key value" a line.
struct OwnerRecord {
  std::string boot, process_space, token;
  int64_t process = 0;
  std::string process_start;  // in the kernel's ticks since the boot, as /proc has it
  std::string text;           // for people: "process 17 on host, since ..."

  static OwnerRecord of_this_process(const std::string& text);
  std::string to_text() const;
  static OwnerRecord parse(const std::string& content);
};

class OwnerFile {
 public:
  // nullptr while another holds it. Waits up to `times.patience` where only time can tell, and says so in the log.
  static std::unique_ptr<OwnerFile> take_if_free(const std::filesystem::path& path, const std::string& text,
                                                 const OwnerTimes& times = {});
  ~OwnerFile();  // lets go
  OwnerFile(const OwnerFile&) = delete;
  OwnerFile& operator=(const OwnerFile&) = delete;

 private:
  OwnerFile(std::filesystem::path path, std::string content, int descriptor, std::chrono::milliseconds renew);
  void keep_alive();
  bool is_ours() const;

  std::filesystem::path path_;
  std::string content_;
  int descriptor_;
  std::chrono::milliseconds renew_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace espalier::store
