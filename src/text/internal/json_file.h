// A JSON file, or a UserError that says what is wrong with it and where.
#pragma once

#include <filesystem>

#include <nlohmann/json.hpp>

namespace espalier::text::internal {

nlohmann::json read_json_file(const std::filesystem::path& path);

}  // namespace espalier::text::internal
