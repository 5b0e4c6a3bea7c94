// What every main does around its work: catch, print, and turn an error into an exit code.
#pragma once

#include <csignal>
#include <exception>
#include <filesystem>
#include <new>

#include "base/error.h"
#include "base/log.h"
#include "base/standard_output.h"
#include "launch/error_file.h"

namespace espalier {

// What the system refused, in our words: "cannot create directories '/x': Permission denied".
inline std::string describe(const std::filesystem::filesystem_error& error) {
  std::string what = error.what();  // "filesystem error: cannot create directories: Permission denied [/x]"
  const size_t begin = what.find(": "), end = what.find(": ", begin + 2);
  what = begin != std::string::npos && end != std::string::npos ? what.substr(begin + 2, end - begin - 2)
                                                                : "cannot access";
  for (const auto& path : {error.path1(), error.path2()})
    if (!path.empty()) what += concat(" '", path.string(), "'");
  return concat(what, ": ", error.code().message());
}

// Runs `body` and returns its result. An error is printed on stderr (with the log's rank prefix), left for the launcher
// if there is one, and becomes its exit code: that of the UserError, 1 for everything else.
template <class Body>
int run_main(const Body& body) {
  const auto fail = [](const std::string& message, ExitCode code) {
    set_live_line("");
    log_line(LogLevel::kQuiet, "error: " + message);
    launch::leave_error_for_launcher(message, static_cast<int>(code));
    return static_cast<int>(code);
  };
  std::signal(SIGXFSZ, SIG_IGN);  // beyond `ulimit -f` writing then fails, as on a full disk
  try {
    return finish_standard_output(body());
  } catch (const UserError& error) {
    return fail(error.what(), error.code());
  } catch (const std::bad_alloc&) {
    return fail("out of memory", ExitCode::kFailed);
  } catch (const std::filesystem::filesystem_error& error) {
    return fail(describe(error), ExitCode::kInputOutput);
  } catch (const InternalError& error) {
    return fail(error.what(), ExitCode::kFailed);
  } catch (const std::exception& error) {
    return fail(concat("a library failed where it should not: ", error.what(),
                       "\nThis is a bug in Espalier: please report it with the command and this message."),
                ExitCode::kFailed);
  }
}

}  // namespace espalier
