// Progress and time left of anything that takes longer than two seconds.
//
//   Progress progress("tokenize", total_bytes, Progress::Unit::kBytes);
//   progress.advance(n);              // from any thread
//   progress.finish("12,034 documents");
//
// On a terminal one live line, rewritten at most ten times a second; elsewhere one line every ten seconds. Nothing is
// printed for work that ends within two seconds.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace espalier {

class Progress {
 public:
  enum class Unit { kBytes, kItems };

  // total 0: unknown, so no share and no time left are shown. `item` names what is counted ("documents").
  Progress(std::string title, int64_t total, Unit unit, std::string item = "");
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance(int64_t amount);
  void set_total(int64_t total) { total_ = total; }
  // Text shown behind the figures ("loss 3.21", "1,204 documents/s"); any thread.
  void set_note(const std::string& note);
  // Removes the live line and, if the work was long enough to show, prints a last line with the rate and `summary`.
  void finish(const std::string& summary = "");
  double seconds() const;

 private:
  std::string line(double seconds) const;

  std::string title_, item_;
  std::atomic<int64_t> total_, done_{0};
  Unit unit_;
  std::string note_;
  std::mutex mutex_;
  std::chrono::steady_clock::time_point start_;
  std::atomic<double> next_print_;
  bool shown_ = false, finished_ = false;
};

}  // namespace espalier
