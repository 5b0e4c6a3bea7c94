// A copy of what this process says (log.h) in a file, for those who were not there.
//
// Lines with the time, without colours and live lines. A file that grows beyond `most_bytes` becomes NAME.1.EXTENSION
// and is begun anew, so that there is never more than twice as much. Trouble with it is said once, and ends nothing;
// where its folder was removed nothing is kept.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace espalier {

inline constexpr int64_t kMostLogBytes = int64_t{4} << 20;

// From now on; an empty path ends it. The folder must exist.
void keep_log(const std::filesystem::path& file, int64_t most_bytes = kMostLogBytes);

namespace internal {
// Of log.cpp, under its lock: a message, and what is to be told of the file itself (empty: nothing).
std::string keep_line(const std::string& line);
}  // namespace internal

}  // namespace espalier
