// A sign of life that `espalier watch` leaves in the folder of each run, and who looks whether it still beats.
//
// It lies at RUN/watch/heartbeat.json and holds a counter that grows with every look, host, process and the seconds
// between two looks. Whoever looks goes by the counter and a clock of its own: no two wall clocks are compared.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace espalier::watch {

struct Heartbeat {
  std::string host;
  int64_t pid = 0, beat = 0;
  double interval_seconds = 0;
  bool has_ended = false;  // it was told to stop: no longer missed
  int64_t touched = 0;     // of the file, by the file system's clock; compared with nothing but itself
};

// RUN/watch, where watch keeps what it knows of a run.
std::filesystem::path watch_folder(const std::filesystem::path& run_folder);

// Where there is no room for it the file that exists is touched, which takes none, and the UserError is thrown then.
void write_heartbeat(const std::filesystem::path& run_folder, const Heartbeat& heartbeat);
std::optional<Heartbeat> read_heartbeat(const std::filesystem::path& run_folder);  // nothing: none, or cut off

// Whether a heart that once beat has stopped.
class HeartbeatWatch {
 public:
  // `now`: seconds of a clock that never jumps. What is wrong, for people; empty: nothing.
  std::string look(const std::optional<Heartbeat>& heartbeat, double now);
  // How long a beat may take to come.
  static double patience_seconds(const Heartbeat& heartbeat);

 private:
  std::optional<Heartbeat> last_;
  double changed_ = 0;
};

}  // namespace espalier::watch
