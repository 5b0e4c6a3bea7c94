// Reading the members of JSON files of our own: one that is missing, or of another type, is an error of the file.
//
//   read_fields(path.string(), [&] { facts.rows = json.at("rows").get<int64_t>(); });
//
// A file of somebody else's deserves better: what was expected, and where (as in convert/hf/config.h).
#pragma once

#include <string>

#include "base/json.h"

namespace espalier {

// "'rows' is missing", "expected a number, found a string": what an exception of nlohmann's says about the document.
std::string field_complaint(const nlohmann::json::exception& error);

// What `read` returns. Where it asks for what the document does not have, a UserError (kBadData) that begins with
// `origin`.
template <class Read>
auto read_fields(const std::string& origin, Read&& read) {
  try {
    return read();
  } catch (const nlohmann::json::exception& error) {
    throw UserError(concat(origin, ": ", field_complaint(error), "; the file is damaged, or another program wrote it"),
                    ExitCode::kBadData);
  }
}

}  // namespace espalier
