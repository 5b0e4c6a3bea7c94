#include "convert/mapped_tensors.h"

#include <sys/mman.h>
#include <unistd.h>

namespace espalier::convert {

MappedTensors::MappedTensors(std::vector<store::TensorView> views, Check check)
    : views_(std::move(views)), check_(std::move(check)) {
  for (size_t number = 0; number < views_.size(); ++number) entries_.push_back(std::make_unique<Entry>());
}

const uint8_t* MappedTensors::map_file(const std::filesystem::path& path) {
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(path);
  return found != files_.end() ? found->second.data() : files_.emplace(path, MappedFile(path)).first->second.data();
}

void MappedTensors::prepare(size_t tensor) {
  const store::TensorView& view = views_[tensor];
  Entry& entry = *entries_[tensor];
  if (view.contiguous()) {
    entry.data = map_file(view.file) + view.offset;
  } else {
    auto packed = std::make_shared<std::vector<uint8_t>>(static_cast<size_t>(view.num_bytes()));
    store::TensorReader(view).read(packed->data());
    entry.data = packed->data();
    entry.packed = std::move(packed);
  }
  try {
    if (check_ && !entry.is_checked) check_(tensor, entry.data);
  } catch (...) {  // the next use fails as well
    entry.data = nullptr;
    throw;
  }
  entry.is_checked = true;
}

SourceTensor MappedTensors::at(size_t tensor) {
  Entry& entry = *entries_[tensor];
  const std::lock_guard lock(entry.mutex);
  if (entry.data == nullptr) prepare(tensor);
  return {views_[tensor].dtype, entry.data, entry.packed};
}

void MappedTensors::release(size_t tensor) {
  Entry& entry = *entries_[tensor];
  const std::lock_guard lock(entry.mutex);
  if (entry.data == nullptr) return;
  if (!views_[tensor].contiguous()) {
    entry.data = nullptr;
    entry.packed.reset();
    return;
  }
  // Whole pages of the file; they come back from it when they are touched again.
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(entry.data);
  const uintptr_t end = begin + static_cast<uintptr_t>(views_[tensor].num_bytes());
  const uintptr_t first = begin / page * page;
  if (first < end) ::madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
}

}  // namespace espalier::convert
