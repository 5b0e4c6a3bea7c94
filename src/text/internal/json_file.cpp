#include "text/internal/json_file.h"

#include "base/error.h"
#include "base/file.h"

namespace espalier::text::internal {

nlohmann::json read_json_file(const std::filesystem::path& path) {
  const std::string content = read_file(path);
  try {
    return nlohmann::json::parse(content);
  } catch (const nlohmann::json::parse_error& error) {
    throw UserError(concat("'", path.string(), "' is no JSON: ", error.what()), ExitCode::kBadData);
  }
}

}  // namespace espalier::text::internal
