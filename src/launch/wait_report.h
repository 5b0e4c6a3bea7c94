// What is said while something is waited for that may never come: after a second, whenever it changes, and every half
// minute.
#pragma once

#include <chrono>
#include <ctime>
#include <string>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"

namespace espalier::launch {

class WaitReport {
 public:
  using Clock = std::chrono::steady_clock;

  // `timeout`: after which the wait is given up. `patience`: before the first word. `level`: kQuiet is always heard.
  explicit WaitReport(std::chrono::duration<double> timeout, std::chrono::seconds patience = std::chrono::seconds(1),
                      LogLevel level = LogLevel::kInfo)
      : start_(Clock::now()), first_(start_ + patience), next_(first_), until_(end_text(timeout)), level_(level) {}

  // Whether look() may say anything: before that its words need not be made.
  bool is_time() const { return Clock::now() >= first_; }
  // To be called at each look; `what` names who or what is waited for.
  void look(const std::string& what) { look(what, until_); }
  // Where the wait may end before it is given up: `end` says when, and how ("the run starts at 10:20:30").
  void look(const std::string& what, const std::string& end) {
    const Clock::time_point now = Clock::now();
    if (now < first_ || (what == said_ && now < next_)) return;
    said_ = what;
    next_ = now + std::chrono::seconds(30);
    const double waited = std::chrono::duration<double>(now - start_).count();
    log_line(level_, concat("waiting for ", what, ": ", format_duration(waited), " so far, ", end));
  }

  // "10:20:30", so many seconds from now.
  static std::string wall_clock(std::chrono::duration<double> from_now) {
    const time_t then = time(nullptr) + static_cast<time_t>(from_now.count());
    tm parts = {};
    localtime_r(&then, &parts);
    char text[32];
    strftime(text, sizeof text, "%H:%M:%S", &parts);
    return text;
  }

 private:
  static std::string end_text(std::chrono::duration<double> timeout) { return "until " + wall_clock(timeout); }

  Clock::time_point start_, first_, next_;
  std::string until_, said_;
  LogLevel level_;
};

}  // namespace espalier::launch
