// A zip file of stored entries, each beginning at a multiple of 64 bytes as torch.save has them; zip64 where needed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/file.h"
#include "store/tensor_view.h"

namespace espalier::store {

class ZipWriter {
 public:
  explicit ZipWriter(OutputFile& output) : output_(output) {}

  // An entry of `size` bytes, which `produce` passes to the sink that it is given.
  void add(const std::string& name, int64_t size, const std::function<void(const ByteSink&)>& produce);
  void add(const std::string& name, const std::string& content);
  // The directory, after all entries.
  void finish();

 private:
  struct Entry {
    std::string name;
    int64_t offset = 0, size = 0;  // of its header; of its content
    uint32_t crc = 0;
  };

  OutputFile& output_;
  std::vector<Entry> entries_;
};

}  // namespace espalier::store
