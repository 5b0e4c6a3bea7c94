#include "base/output_checks.h"

#include <fstream>
#include <system_error>

#include "base/error.h"

namespace espalier {

namespace fs = std::filesystem;

std::string describe_other_file(const fs::path& output, std::string_view start, const std::string& kind) {
  std::error_code error;
  if (!fs::is_regular_file(output, error) || fs::file_size(output, error) == 0) return "";
  std::string found(start.size(), '\0');
  std::ifstream(output, std::ios::binary).read(found.data(), static_cast<std::streamsize>(found.size()));
  if (found == start) return "";
  return concat("'", output.string(), "' exists and is not ", kind, ". Give another name.");
}

bool is_same_file(const fs::path& input, const fs::path& output) {
  std::error_code error;
  return !input.empty() && !output.empty() && fs::equivalent(input, output, error);
}

std::string name_of_folder(const fs::path& folder) {
  const fs::path whole = fs::absolute(folder).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

void check_is_outside(const fs::path& target, const fs::path& source) {
  std::error_code error;
  const std::string name = name_of_folder(source);
  if (fs::equivalent(target / name, source, error))
    throw UserError(concat("--to '", target.string(), "' is where '", source.string(), "' itself lies, so '",
                           (target / name).string(), "' would be no copy. Name another folder."),
                    ExitCode::kUsage);
  error.clear();
  for (fs::path folder = fs::weakly_canonical(target, error); !error; folder = folder.parent_path()) {
    if (fs::equivalent(folder, source, error))
      throw UserError(concat("--to '", target.string(), "' is in '", source.string(),
                             "' itself, with which the copy would be lost. Name a folder outside it."),
                      ExitCode::kUsage);
    error.clear();
    if (!folder.has_relative_path()) return;
  }
}

}  // namespace espalier
