// Reads tensors of a step folder, checking every block against the manifest.
//
// Only files that are asked for need to exist, so a copy of `manifest.json` and `weights-*` serves generation.
// Thread-safe. Reading does not map: a bad disk gives an error with a name instead of a signal.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "store/manifest.h"

namespace espalier::store {

// Whether blocks are read by way of the system's page cache, where the file system can do without.
enum class PageCache {
  kFilled,   // it holds them then, for whoever reads them next
  kAsItIs,   // what it holds comes from it, the rest past it: as fast as the disk, and nothing else leaves the cache
  kAvoided,  // all past it: for who wants to know what the disk holds, or reads more than the cache can keep
};

class StepReader {
 public:
  // A folder that is named as another step than its manifest's is refused (UserError, kBadData): it was renamed, or
  // files of two checkpoints are mixed.
  explicit StepReader(const std::filesystem::path& step_folder);
  ~StepReader();
  StepReader(StepReader&&) noexcept;

  const Manifest& manifest() const { return manifest_; }
  const std::filesystem::path& folder() const { return folder_; }

  // From now on; kFilled until then.
  void use_cache(PageCache how);

  // Opens the files, compares their sizes and headers with the manifest: every problem in one UserError (kBadData).
  void check_files(const std::vector<std::string>& paths);

  // Reads one block of a tensor of this manifest into `destination` (block.bytes) and checks it. Throws UserError
  // (kBadData) naming tensor, file, block, expected and found checksum; `destination` then holds rubbish.
  void read_block(const StoredTensor& tensor, size_t block, void* destination);

  // The content of a file that is not a safetensors file ("tokenizer/vocab.json"), checked.
  std::string read_extra_file(const std::string& path) const;
  // Checks those of the files whose path begins so ("tokenizer/") that exist, for whoever then opens them by name.
  void check_extra_files(const std::string& prefix) const;

 private:
  struct OpenFile;
  struct Buffers;
  const OpenFile& open(const std::string& path);

  std::filesystem::path folder_;
  Manifest manifest_;
  PageCache cache_ = PageCache::kFilled;
  std::unique_ptr<std::mutex> mutex_;
  std::map<std::string, std::unique_ptr<OpenFile>> files_;
  std::unique_ptr<Buffers> buffers_;  // what is read past the cache comes by way of them
};

// Every problem of a step folder, as one line each, empty when it is whole: files that are missing or of another
// length, headers and blocks whose checksum differs. Uses `num_threads`; shows progress on stderr.
std::vector<std::string> verify_step(const std::filesystem::path& step_folder, int num_threads, bool weights_only);

}  // namespace espalier::store
