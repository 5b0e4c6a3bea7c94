// The end of a log that grows, read piece by piece by whoever follows it.
//
//   LogPiece piece = read_log_tail(run / "log.txt", {}, 64 << 10);      // the last lines
//   piece = read_log_tail(run / "log.txt", piece.end, 64 << 10);        // what came since
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace espalier::report {

// How far somebody has read. A log that is begun anew under its name (kept_log.h) is another file.
struct LogPlace {
  uint64_t file = 0;  // its inode; 0: nothing was read yet
  int64_t bytes = 0;  // of it
  bool operator==(const LogPlace&) const = default;
};

struct LogPiece {
  bool anew = false;  // not what follows `since`: because of a new file, or since there is more than what was asked for
  std::string text;   // whole lines
  LogPlace end;
};

// What follows `since`, or the last lines where that is more than `most_bytes`, or of another file. A line without its
// end is left for later, unless it alone is longer than `most_bytes`. Nothing where there is no such file.
LogPiece read_log_tail(const std::filesystem::path& path, const LogPlace& since, int64_t most_bytes);

}  // namespace espalier::report
