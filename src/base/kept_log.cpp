#include "base/kept_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <mutex>
#include <utility>

#include "base/error.h"

namespace espalier {
namespace {

struct KeptLog {
  std::mutex mutex;
  std::filesystem::path file;
  int64_t most_bytes = kMostLogBytes;
  bool in_trouble = false;
};

KeptLog& kept() {
  static KeptLog* instance = new KeptLog;  // never destroyed, as the log
  return *instance;
}

std::string time_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  char text[64];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S ", &parts)};
}

// "log.txt" -> "log.1.txt"
std::filesystem::path older_name(const std::filesystem::path& file) {
  return file.parent_path() / concat(file.stem().string(), ".1", file.extension().string());
}

// 0, or the error.
int append(const KeptLog& log, const std::string& text) {
  struct stat info = {};
  if (::stat(log.file.c_str(), &info) == 0 && info.st_size >= log.most_bytes &&
      std::rename(log.file.c_str(), older_name(log.file).c_str()) != 0)
    return errno;
  const int file = ::open(log.file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
  if (file < 0) return errno;
  const ssize_t written = ::write(file, text.data(), text.size());
  const int error = written < 0 ? errno : written < static_cast<ssize_t>(text.size()) ? ENOSPC : 0;
  ::close(file);
  return error;
}

}  // namespace

void keep_log(const std::filesystem::path& file, int64_t most_bytes) {
  KeptLog& log = kept();
  const std::lock_guard lock(log.mutex);
  log.file = file.empty() ? file : std::filesystem::absolute(file);
  log.most_bytes = most_bytes;
  log.in_trouble = false;
}

std::string internal::keep_line(const std::string& line) {
  KeptLog& log = kept();
  const std::lock_guard lock(log.mutex);
  if (log.file.empty()) return "";
  const int error = append(log, time_text() + line + "\n");
  if (error == 0 || error == ENOENT) {  // a folder that was removed wants no log
    log.in_trouble = false;
    return "";
  }
  if (std::exchange(log.in_trouble, true)) return "";
  return concat("warning: cannot keep what is said in '", log.file.string(), "': ", std::strerror(error));
}

}  // namespace espalier
