// A file that appears under its name when it is complete: written next to it, on the disk before it is renamed.
#pragma once

#include <filesystem>

#include "base/file.h"
#include "store/tensor_view.h"

namespace espalier::store {

class NewFile {
 public:
  explicit NewFile(const std::filesystem::path& path);
  ~NewFile();  // without commit(), nothing is left
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  OutputFile& output() { return output_; }
  void commit();

 private:
  std::filesystem::path path_;
  OutputFile output_;
  bool committed_ = false;
};

// Passes the bytes of a tensor to `sink`. A source that gives more or less than its num_bytes() is a bug.
void produce_all(const TensorSource& source, const ByteSink& sink);

}  // namespace espalier::store
