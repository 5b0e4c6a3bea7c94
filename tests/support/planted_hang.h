// Hangs of real ranks, planted from outside: a rank is stopped, put to sleep or made to compute for ever in the phase
// that it says it is in. Sleep and endless work need planted_faults.cpp in the rank (LD_PRELOAD).
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "base/format.h"
#include "base/whereabouts.h"

namespace espalier::test {

enum class Hang { kStop, kBusy, kAsleep };

inline std::string in_words(Hang kind) {
  return kind == Hang::kStop ? "stopped" : kind == Hang::kBusy ? "busy" : "asleep";
}

// What a rank says of itself, read from the memory that it shares with its launcher. The first words of it, as
// base/whereabouts.cpp has them: whereabouts_reader_test holds them together.
class RankWhereabouts {
 public:
  struct Words {
    volatile int32_t is_open, phase, waiting, unused;
    volatile int64_t step;
  };

  // Nothing where the process has ended, or is none of a launcher.
  static std::optional<RankWhereabouts> of(pid_t pid) {
    std::ifstream environment(concat("/proc/", pid, "/environ"), std::ios::binary);
    const std::string prefix = concat(kWhereaboutsVariable, "=");
    int descriptor = -1;
    long slot = -1;
    for (std::string entry; std::getline(environment, entry, '\0');)
      if (entry.starts_with(prefix)) std::sscanf(entry.c_str() + prefix.size(), "%d:%ld", &descriptor, &slot);
    if (slot < 0) return std::nullopt;
    const int file = open(concat("/proc/", pid, "/fd/", descriptor).c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return std::nullopt;
    return RankWhereabouts(pid, file, slot);
  }

  pid_t pid() const { return pid_; }
  bool is_open() const { return words_->is_open != 0; }
  RunPhase phase() const { return static_cast<RunPhase>(words_->phase); }
  Waiting waiting() const { return static_cast<Waiting>(words_->waiting); }
  int64_t step() const { return words_->step; }

  // Closes `file`.
  RankWhereabouts(pid_t pid, int file, long slot) : pid_(pid) {
    constexpr size_t kBytes = 8192;
    void* const at = mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, file, slot * static_cast<off_t>(kBytes));
    close(file);
    words_ = std::shared_ptr<const Words>(static_cast<const Words*>(at),
                                          [](const Words* words) { munmap(const_cast<Words*>(words), kBytes); });
  }

 private:
  pid_t pid_;
  std::shared_ptr<const Words> words_;
};

// 'T' stopped, 'Z' ended, 0: there is no such process.
inline char state_of_process(pid_t pid) {
  std::ifstream file(concat("/proc/", pid, "/stat"));
  std::string text;
  std::getline(file, text);
  const size_t end = text.rfind(')');
  return end == std::string::npos || end + 2 >= text.size() ? 0 : text[end + 2];
}

inline bool has_ended(pid_t pid) {
  const char state = state_of_process(pid);
  return state == 0 || state == 'Z' || state == 'X';
}

// Whether the process has planted_faults.cpp in it, ready.
inline bool takes_planted_faults(pid_t pid) {
  std::ifstream file(concat("/proc/", pid, "/status"));
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("SigCgt:")) return (std::stoull(line.substr(7), nullptr, 16) >> (SIGRTMIN + 20 - 1) & 1) != 0;
  return false;
}

inline void send_planted(pid_t pid, int value) {
  sigval what = {};
  what.sival_int = value;
  sigqueue(pid, SIGRTMIN + 20, what);
}

// Hangs the process at once.
inline void plant(pid_t pid, Hang kind) {
  if (kind == Hang::kStop)
    kill(pid, SIGSTOP);
  else
    send_planted(pid, kind == Hang::kBusy ? 1 : 2);
}

// Hangs the rank in this phase, from `step` on: waits until it is there. False if it has ended before.
inline bool plant_in(const RankWhereabouts& rank, RunPhase phase, Hang kind, double seconds, int64_t step = 0) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  for (bool is_ready = kind == Hang::kStop; Clock::now() < end;) {
    if (!is_ready) is_ready = takes_planted_faults(rank.pid());
    const bool is_there = is_ready && rank.phase() == phase && rank.step() >= step &&
                          (kind == Hang::kStop || rank.waiting() != Waiting::kOthers);
    if (!is_there) {
      if (has_ended(rank.pid())) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      continue;
    }
    plant(rank.pid(), kind);
    if (kind != Hang::kStop) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return rank.phase() == phase && !has_ended(rank.pid());  // it may have been at its very end
    }
    while (state_of_process(rank.pid()) != 'T' && !has_ended(rank.pid()))
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    if (has_ended(rank.pid())) return false;
    if (rank.phase() == phase) return true;
    kill(rank.pid(), SIGCONT);  // it had gone on before the signal came
  }
  return false;
}

}  // namespace espalier::test
