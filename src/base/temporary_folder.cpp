#include "base/temporary_folder.h"

#include <cstdlib>

#include "base/error.h"

namespace espalier {

std::filesystem::path temporary_folder() {
  std::error_code error;
  std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  if (!error) return folder;
  const char* const named = std::getenv("TMPDIR");
  throw UserError(
      named != nullptr
          ? concat("TMPDIR=", named, " names no folder (", error.message(), "): set it to one that exists, or unset it")
          : concat("there is no folder for temporary files: ", error.message(), "; set TMPDIR"),
      ExitCode::kCannotCreate);
}

}  // namespace espalier
