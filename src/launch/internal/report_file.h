// What a launcher leaves for people in the run folder: NAME_<time>_<host>.txt.
#pragma once

#include <string>

namespace espalier::launch::internal {

std::string utc_now(const char* format);  // strftime's

// The file's path; empty where it cannot be written: then the text is in the log.
std::string write_report(const std::string& folder, const std::string& name, const std::string& text);

}  // namespace espalier::launch::internal
