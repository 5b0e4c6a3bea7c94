// The folder of --save as the first rank holds it while its run lasts: locked, with the options and the command line.
//
// A run that is refused before it begins leaves no folder that was not there before. A folder that somebody removes
// under the run is recreated, so that what the run continues to learn has a place.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "store/run_folder.h"

namespace espalier::train {

class HeldFolder {
 public:
  // Creates the folder where it is missing, and locks it. UserError when another run holds it.
  explicit HeldFolder(std::filesystem::path folder);
  ~HeldFolder();
  HeldFolder(const HeldFolder&) = delete;
  HeldFolder& operator=(const HeldFolder&) = delete;

  // The run begins: writes config.toml and command.txt, and the folder stays.
  void keep(std::string config_toml, std::string command_line);

  // Of a folder that was kept: it, or the options in it, were removed.
  bool is_gone() const;
  // Makes and locks it again. False where it cannot be made at present. UserError when another run has taken its place,
  // where this one must not write.
  bool restore();

 private:
  void write_options() const;
  void remove_what_was_created();

  std::filesystem::path folder_;
  std::optional<std::filesystem::path> first_created_;  // the uppermost folder that was missing
  std::optional<store::RunLock> lock_;
  bool kept_ = false;
  std::string config_toml_, command_line_;
};

}  // namespace espalier::train
