// What every main does around its work: catch, print, and turn an error into an exit code.
#pragma once

#include <exception>
#include <filesystem>
#include <new>

#include "base/error.h"
#include "base/log.h"
#include "launch/error_file.h"

namespace espalier {

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
  try {
    return body();
  } catch (const UserError& error) {
    return fail(error.what(), error.code());
  } catch (const std::bad_alloc&) {
    return fail("out of memory", ExitCode::kFailed);
  } catch (const std::filesystem::filesystem_error& error) {
    return fail(concat("cannot use '", error.path1().string(), "'",
                       error.path2().empty() ? "" : concat(" and '", error.path2().string(), "'"), ": ",
                       error.code().message()),
                ExitCode::kInputOutput);
  } catch (const std::exception& error) {
    return fail(error.what(), ExitCode::kFailed);
  }
}

}  // namespace espalier
