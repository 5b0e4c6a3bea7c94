// A file of lines that takes long to make, and goes on where a killed process left it.
//
//   GrowingFile file("texts.jsonl", {{"seed", 7}}, {.overwrite = false});
//   for (int64_t number = file.num_kept(); number < count; ++number) file.write(line(number));
//   file.finish();                                                // texts.jsonl appears
//
// Until finish() the lines are in texts.jsonl.partial, and what they are made from is in texts.jsonl.partial.json. One
// process at a time holds the two; what a killed one left is kept, but for a line that it had not written whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

namespace espalier {

class GrowingFile {
 public:
  struct How {
    bool overwrite = false;  // begins anew, whatever there is
  };

  // A UserError where `path` exists, where another process writes it, and where lines were made from something else
  // than `made_from` (an object), which names what differs.
  GrowingFile(std::filesystem::path path, const nlohmann::ordered_json& made_from, How how);
  ~GrowingFile();  // keeps what was written; removes a file without lines
  GrowingFile(const GrowingFile&) = delete;
  GrowingFile& operator=(const GrowingFile&) = delete;

  int64_t num_kept() const { return num_kept_; }  // lines of processes before
  void write(std::string_view line);              // without its end
  void finish();

 private:
  void take_over(const nlohmann::ordered_json& made_from, bool overwrite);
  void keep_whole_lines();

  std::filesystem::path path_, partial_, facts_;
  int descriptor_ = -1;
  int64_t num_kept_ = 0;
};

}  // namespace espalier
