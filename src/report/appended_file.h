// A file of a run that grows record by record, and whose trouble does not end the run.
//
// A record that cannot be written (a full disk, a network file system that is away) waits in memory and is written, in
// order, with the next one that can be. A file that was removed or replaced under its name is begun anew there. Both
// are reported loudly, once each time. A record is in the file complete or not at all.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <string>

namespace espalier::report {

class AppendedFile {
 public:
  static constexpr size_t kMostWaitingBytes = size_t{64} << 20;  // beyond that the oldest are given up

  enum class Opening { kNow, kWithFirstRecord };
  // Opens or creates; here trouble is a UserError, unless that is left to the first record. `header` begins every file
  // that is new.
  explicit AppendedFile(std::filesystem::path path, std::string header = "", Opening opening = Opening::kNow);
  // Says what is still waiting, and is lost.
  ~AppendedFile();
  AppendedFile(const AppendedFile&) = delete;
  AppendedFile& operator=(const AppendedFile&) = delete;

  // `if_late` takes the record's place where it has to wait; empty: the record itself waits.
  void append(std::string record, std::string if_late = "");
  void try_again();  // to write what waits
  void give_up();    // what waits, without a word

  const std::filesystem::path& path() const { return path_; }
  size_t num_waiting() const { return waiting_.size(); }

 private:
  void open();
  bool is_in_place() const;
  void write(const std::string& record);
  void try_at_end();
  void write_waiting(size_t num_late);
  void say_trouble(const std::string& reason);

  std::filesystem::path path_;
  std::string header_;
  int descriptor_ = -1;
  std::deque<std::string> waiting_;
  size_t waiting_bytes_ = 0;
  int64_t num_lost_ = 0;
  bool in_trouble_ = false;
};

}  // namespace espalier::report
