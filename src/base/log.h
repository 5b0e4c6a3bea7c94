// Messages to people, on stderr. stdout belongs to data.
//
// Lines appear whole even when several threads write. A live line (progress, the current step) stays at the bottom
// of a terminal; ordinary lines push it down. Without a terminal live lines are not shown.
#pragma once

#include <string>

#include "base/error.h"

namespace espalier {

enum class LogLevel { kQuiet, kWarning, kInfo, kDebug };

void set_log_level(LogLevel level);
LogLevel log_level();

// Puts "[rank 3] " before every message of this process; empty for none.
void set_log_prefix(const std::string& prefix);

void log_line(LogLevel level, const std::string& message);

template <class... Parts>
void log_info(const Parts&... parts) {
  log_line(LogLevel::kInfo, concat(parts...));
}
template <class... Parts>
void log_warning(const Parts&... parts) {
  log_line(LogLevel::kWarning, "warning: " + concat(parts...));
}

// The same, at most once per process for the same text.
void warn_once(const std::string& message);

// True when stderr is a terminal that can rewrite a line (not TERM=dumb).
bool stderr_is_terminal();

// Replaces the live line; empty removes it. No effect without a terminal.
void set_live_line(const std::string& text);

}  // namespace espalier
