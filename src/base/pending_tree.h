// A folder for what a program needs while it runs, and what is said where it is interrupted (base/pending_file.h).
#pragma once

#include <filesystem>

#include "base/pending_file.h"

namespace espalier {

// The folder `path`, made where it does not exist, with those above it. The destructor, or a signal that ends the
// process, removes what is in it, and it; a folder that was not empty before is left alone, since only its owner knows
// what to remove.
class PendingTree {
 public:
  explicit PendingTree(const std::filesystem::path& path);
  ~PendingTree();
  PendingTree(PendingTree&&) = delete;

 private:
  PendingFolder folder_;
  std::filesystem::path path_;
  bool is_ours_;
};

// As clean_up_when_interrupted() of pending_file.h, for commands about which "what was begun is being removed" is not
// true. `consequence` is a literal.
void clean_up_when_interrupted(const char* consequence);

inline constexpr char kResumes[] = "what is complete is kept, and the same command continues from there";

}  // namespace espalier
