#include "base/log.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>

#include "base/console.h"
#include "base/kept_log.h"

namespace espalier {
namespace {

struct LogState {
  std::mutex mutex;
  std::atomic<LogLevel> level = LogLevel::kInfo;
  std::string prefix;
  std::string live_line;
  std::set<std::string> said;
};

LogState& state() {
  static LogState* instance = new LogState;  // never destroyed: threads may log until the end
  return *instance;
}

constexpr const char* kEraseLine = "\r\033[K";

// One column is left free: many terminals go to the next line after the last.
std::string shown(const std::string& live_line) {
  return live_line.empty() ? "" : fit_columns(live_line, terminal_columns() - 1);
}

// What a message begins with stands out on a terminal.
std::string with_colour(const std::string& message) {
  if (message.starts_with("error: ")) return styled(Stream::kError, Style::kRed, "error:") + message.substr(6);
  if (message.starts_with("warning: ")) return styled(Stream::kError, Style::kYellow, "warning:") + message.substr(8);
  return message;
}

void print_locked(LogState& log, const std::string& message) {
  std::string text = log.live_line.empty() ? "" : kEraseLine;
  text += log.prefix + with_colour(message) + "\n";
  if (const std::string trouble = internal::keep_line(log.prefix + message); !trouble.empty())
    text += log.prefix + with_colour(trouble) + "\n";
  text += shown(log.live_line);
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace

void set_log_level(LogLevel level) { state().level = level; }
LogLevel log_level() { return state().level; }
void set_log_prefix(const std::string& prefix) {
  LogState& log = state();
  const std::lock_guard lock(log.mutex);
  log.prefix = prefix;
}

void log_line(LogLevel level, const std::string& message) {
  LogState& log = state();
  const std::lock_guard lock(log.mutex);
  if (level <= log.level) print_locked(log, message);
}

void warn_once(const std::string& message) {
  LogState& log = state();
  const std::lock_guard lock(log.mutex);
  if (log.level >= LogLevel::kWarning && log.said.insert(message).second) print_locked(log, "warning: " + message);
}

bool stderr_is_terminal() {
  static const bool terminal = is_terminal(Stream::kError);
  return terminal;
}

void set_live_line(const std::string& text) {
  if (!stderr_is_terminal()) return;
  LogState& log = state();
  const std::lock_guard lock(log.mutex);
  if (log.level < LogLevel::kInfo) return;
  log.live_line = text;
  const std::string output = kEraseLine + shown(text);
  std::fwrite(output.data(), 1, output.size(), stderr);
  std::fflush(stderr);
}

}  // namespace espalier
