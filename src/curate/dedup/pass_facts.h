// What a part of a pass counted, and what a pass says in the report, kept beside what it decided.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json_fields.h"

namespace espalier::curate {

inline void write_facts(const std::filesystem::path& folder, const nlohmann::ordered_json& facts) {
  write_file_atomically(folder / "facts.json", facts.dump() + "\n");
}

inline nlohmann::ordered_json read_facts(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "facts.json";
  return parse_json<nlohmann::ordered_json>(read_file(file), file.string());
}

}  // namespace espalier::curate
