// Makes what a pass learns from all documents, in a folder that processes may share: each part is one process's, and
// another's once that has ended without completing it. What is complete stays for a run that resumes.
//
//   FOLDER/part-00005/           complete: what finish() of that part left
//   FOLDER/part-00005.partial/   being made by whoever holds part-00005.lock
//   FOLDER/joined/               what join() left, where there are several parts
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "curate/file_lock.h"
#include "curate/step.h"

namespace espalier::curate {

class PassWork {
 public:
  // `title`: what progress and waiting are shown with. The threads share the memory.
  PassWork(std::filesystem::path folder, std::string title, int64_t workers, int64_t memory_bytes);

  // Feeds a part all of its digests, in order. Any thread.
  using Feed = std::function<void(int64_t part, PassPart& into)>;
  // Makes what this process can claim, waits for the others, and returns the folder that open() reads.
  std::filesystem::path make(const Pass& pass, const Feed& feed);

 private:
  using Work = std::function<void(const PassSpace&)>;
  std::filesystem::path path_of(const std::string& name, const char* end = "") const;
  bool is_complete(const std::string& name) const { return std::filesystem::exists(path_of(name)); }
  bool is_left(const std::string& name) const;  // to be made, and nobody makes it
  void make_one(const std::string& name, int64_t memory_bytes, const Work& work) const;
  void make_parts(const Pass& pass, const Feed& feed, const std::vector<std::string>& names) const;
  void complete(const std::vector<std::string>& names, const std::function<void()>& make_left) const;

  std::filesystem::path folder_;
  std::string title_;
  int64_t workers_, memory_bytes_;
};

}  // namespace espalier::curate
