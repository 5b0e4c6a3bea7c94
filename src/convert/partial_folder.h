// A folder that appears under its name only when it is complete: written as NAME.partial next to it.
#pragma once

#include <filesystem>
#include <optional>

#include "store/run_folder.h"

namespace espalier::convert {

class PartialFolder {
 public:
  // `target` must not exist, or must be empty. What a killed attempt left under the partial name is removed; a folder
  // of that name that something else made, or that another process writes, is a UserError (kCannotCreate).
  explicit PartialFolder(const std::filesystem::path& target);
  ~PartialFolder();  // without commit(), the partial folder is removed
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;

  const std::filesystem::path& path() const { return partial_; }
  // On the disk, under its name.
  void commit();

 private:
  std::filesystem::path target_, partial_;
  std::optional<store::RunLock> lock_;
  bool committed_ = false;
};

}  // namespace espalier::convert
