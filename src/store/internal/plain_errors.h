// The file system library's exceptions as errors of ours.
#pragma once

#include <filesystem>

#include "base/error.h"

namespace espalier::store {

// What an exception says, in words for people.
inline std::string plain_text(const std::exception& error) {
  const auto* failure = dynamic_cast<const std::filesystem::filesystem_error*>(&error);
  if (failure == nullptr) return dynamic_cast<const std::bad_alloc*>(&error) ? "out of memory" : error.what();
  const std::string second = failure->path2().empty() ? "" : concat(" to '", failure->path2().string(), "'");
  return concat("cannot ", second.empty() ? "use" : "rename", " '", failure->path1().string(), "'", second, ": ",
                failure->code().message());
}

// Runs `action`; a filesystem_error becomes a UserError (kInputOutput) with path and reason.
template <class Action>
auto with_plain_errors(const Action& action) {
  try {
    return action();
  } catch (const std::filesystem::filesystem_error& error) {
    throw UserError(plain_text(error), ExitCode::kInputOutput);
  }
}

}  // namespace espalier::store
