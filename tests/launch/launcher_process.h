// `espalier launch` as a process of its own, killed when it goes out of scope.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/format.h"
#include "tests/e2e/run_files.h"

namespace espalier::test {

class LauncherProcess {
 public:
  // All that it says goes into the file `log`.
  LauncherProcess(const std::string& log, const Words& arguments) : log_(log) {
    std::fflush(nullptr);
    const int file = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    pid_ = fork();
    if (pid_ != 0) {
      close(file);
      return;
    }
    dup2(file, STDOUT_FILENO);
    dup2(file, STDERR_FILENO);
    Words words = Words{ESPALIER_PROGRAM, "launch"} + arguments;
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    execv(ESPALIER_PROGRAM, pointers.data());
    _exit(127);
  }
  ~LauncherProcess() { end(SIGKILL); }
  LauncherProcess(const LauncherProcess&) = delete;
  LauncherProcess& operator=(const LauncherProcess&) = delete;

  // Sends the signal, and waits until it has ended.
  void end(int signal) {
    if (pid_ <= 0) return;
    kill(pid_, signal);
    waitpid(pid_, &status_, 0);
    pid_ = -1;
  }
  bool runs() {
    if (pid_ > 0 && waitpid(pid_, &status_, WNOHANG) == pid_) pid_ = -1;
    return pid_ > 0;
  }
  // Once it has ended; above 1000 by a signal.
  int exit_code() const { return WIFEXITED(status_) ? WEXITSTATUS(status_) : 1000 + WTERMSIG(status_); }
  pid_t pid() const { return pid_; }
  void send(int signal) const { kill(pid_, signal); }
  std::string said() const { return read_file(log_); }

  // Processes of its ranks by rank.
  std::map<int64_t, pid_t> ranks() const {
    std::map<int64_t, pid_t> found;
    std::ifstream children(concat("/proc/", pid_, "/task/", pid_, "/children"));
    for (pid_t child = 0; children >> child;) {
      std::ifstream file(concat("/proc/", child, "/environ"), std::ios::binary);
      for (std::string entry; std::getline(file, entry, '\0');)
        if (entry.starts_with("RANK=")) found[std::stoll(entry.substr(5))] = child;
    }
    return found;
  }

 private:
  std::string log_;
  pid_t pid_ = -1;
  int status_ = 0;
};

}  // namespace espalier::test
