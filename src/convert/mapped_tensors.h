// Tensors that are in files, as memory: what copying by a map reads from.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/file.h"
#include "convert/copy_pieces.h"
#include "store/tensor_view.h"

namespace espalier::convert {

class MappedTensors {
 public:
  // Called once for each tensor before its first use: throws where the bytes are not what they should be.
  using Check = std::function<void(size_t tensor, const void* data)>;

  // By number in the source list of a map.
  explicit MappedTensors(std::vector<store::TensorView> views, Check check = {});

  // Thread-safe. Files are mapped when first needed; a view that is not packed is read into memory, packed.
  SourceTensor at(size_t tensor);
  // Gives the memory that at() has filled back until it is asked for again. Thread-safe: what at() returned before
  // stays valid.
  void release(size_t tensor);

 private:
  struct Entry {
    std::mutex mutex;
    const uint8_t* data = nullptr;  // null: not there, or given back
    std::shared_ptr<const std::vector<uint8_t>> packed;
    bool is_checked = false;
  };
  const uint8_t* map_file(const std::filesystem::path& path);
  void prepare(size_t tensor);

  std::vector<store::TensorView> views_;
  Check check_;
  std::vector<std::unique_ptr<Entry>> entries_;
  std::mutex mutex_;
  std::map<std::filesystem::path, MappedFile> files_;
};

}  // namespace espalier::convert
