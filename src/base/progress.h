// Progress and time left of anything that takes longer than two seconds.
//
//   Progress progress("tokenize", total_bytes, Progress::Unit::kBytes);
//   progress.advance(n);              // from any thread
//   progress.finish("12,034 documents");
//
// On a terminal one live line, as wide as that, rewritten ten times a second; elsewhere one line every ten seconds,
// whether the work advances or not. Nothing is printed for work that ends within two seconds.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace espalier {

class Progress {
 public:
  enum class Unit { kBytes, kItems };

  // total 0: unknown, so no share and no time left are shown. `item` names what is counted ("documents").
  Progress(std::string title, int64_t total, Unit unit, std::string item = "");
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance(int64_t amount) { done_ += amount; }
  void set_total(int64_t total) { total_ = total; }
  // Text shown after the figures ("loss 3.21", "1,204 documents/s"); any thread.
  void set_note(const std::string& note);
  // Removes the live line and, if the work was long enough to show, prints a last line with the rate and `summary`.
  void finish(const std::string& summary = "");
  double seconds() const;

  // What a line is made from. It gives up, in this order, the note, the amounts and the rate where it would be wider
  // than `columns`; the title, the share and the time left stay.
  struct Facts {
    std::string title, item, note;
    Unit unit = Unit::kItems;
    int64_t done = 0, total = 0;
    double seconds = 0;
  };
  static std::string line(const Facts& facts, size_t columns);

 private:
  Facts facts() const;
  void print_by_time();
  void stop_printing();

  std::string title_, item_;
  std::atomic<int64_t> total_, done_{0};
  Unit unit_;
  std::chrono::steady_clock::time_point start_;
  mutable std::mutex mutex_;
  std::condition_variable stop_;
  std::string note_;
  bool shown_ = false, stopping_ = false;
  std::thread printer_;
};

}  // namespace espalier
