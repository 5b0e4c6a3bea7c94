// A YAML file as JSON: scalars by the rules of YAML 1.1, as PyYAML reads them (yes and no are truth values), !function
// NAME as the string "!function NAME". A file is data: nothing in it is run.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "eval/fields.h"

namespace espalier::eval {

struct YamlFile {
  Json content;                               // an object
  std::map<std::string, std::string> places;  // "file:line" of each key at the top
};

// A UserError (kBadData) names file and line of what is not YAML, or of another tag.
YamlFile read_yaml(const std::filesystem::path& path);
YamlFile parse_yaml(const std::string& content, const std::string& name);

}  // namespace espalier::eval
