#include "base/standard_output.h"

#include <stdio_ext.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <string>

#include "base/error.h"
#include "base/log.h"

namespace espalier {

int finish_standard_output(int code) {
  const bool printed = __fpending(stdout) > 0;
  bool failed = std::ferror(stdout) != 0;
  if (failed) {  // in the middle: one more character asks for the reason again
    std::clearerr(stdout);
    std::fputc('\n', stdout);
  }
  errno = 0;
  const bool flushed = std::fflush(stdout) == 0;
  int error = flushed ? 0 : errno;
  failed = failed || !flushed || std::cout.bad();
  // A full disk or a quota behind a network is reported when the file is closed.
  if (flushed && close(STDOUT_FILENO) != 0 && (errno != EBADF || printed)) failed = true, error = errno;
  if (!failed) return code;
  const int result = code == 0 ? static_cast<int>(ExitCode::kInputOutput) : code;
  if (error == EPIPE) return result;
  const std::string reason = error != 0 ? concat(": ", std::strerror(error)) : "; what was printed is incomplete";
  log_line(LogLevel::kQuiet, "error: cannot write to standard output" + reason);
  return result;
}

}  // namespace espalier
