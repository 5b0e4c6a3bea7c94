// TensorBoard event files (TFRecord framing, hand-written protobuf), readable by stock tensorboard.
//
// One writer per run start; a restart begins a new file, as Megatron does, and writes no purge event (it would drop
// the points of tags whose x axis is samples or tokens). Points that cannot be written wait (appended_file.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "report/appended_file.h"

namespace espalier::report {

class TensorBoardWriter {
 public:
  // Creates `directory` and a file events.out.tfevents.<time>.<host>.<pid>.<n> in it.
  explicit TensorBoardWriter(const std::filesystem::path& directory);
  void add_scalar(const std::string& tag, double value, int64_t x);
  void add_text(const std::string& tag, const std::string& text, int64_t x);

 private:
  AppendedFile file_;
};

}  // namespace espalier::report
