// Where the ranks' output and error files are: FOLDER/<run id>_<8 digits>/attempt_<n>/<local rank>/{stdout.log,
// stderr.log,error.json}, torchrun's layout.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "launch/internal/socket.h"
#include "launch/launch_options.h"
#include "launch/output.h"
#include "launch/worker_group.h"

namespace espalier::launch::internal {

class RoundFiles {
 public:
  explicit RoundFiles(const LaunchOptions& options);
  // A temporary folder goes, unless the ranks' output lies there.
  ~RoundFiles();
  RoundFiles(const RoundFiles&) = delete;
  RoundFiles& operator=(const RoundFiles&) = delete;

  std::string folder() const { return run_.string(); }
  bool folder_is_kept() const { return !is_temporary_ || writes_files_; }
  std::string error_file(int64_t attempt, int64_t local_rank) const;
  // For the rank's error file.
  void make_folder(int64_t attempt, int64_t local_rank) const;
  // And gives it its streams, as --redirects, --tee and --local-ranks-filter say.
  void open(int64_t attempt, Worker& worker, OutputPump& pump) const;

 private:
  std::filesystem::path folder_of(int64_t attempt, int64_t local_rank) const;
  int open_stream(int number, bool redirected, bool teed, const Worker& worker, OutputPump& pump,
                  const std::filesystem::path& file) const;

  const LaunchOptions& options_;
  std::filesystem::path base_, run_;
  bool is_temporary_ = false, writes_files_ = false;
  Descriptor lock_;  // of a temporary folder: those without one are leftovers
};

}  // namespace espalier::launch::internal
