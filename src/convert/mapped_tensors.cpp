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
    entry.packed.resize(static_cast<size_t>(view.num_bytes()));
    store::TensorReader(view).read(entry.packed.data());
    entry.data = entry.packed.data();
  }
  if (check_) check_(tensor, entry.data);
}

SourceTensor MappedTensors::at(size_t tensor) {
  std::call_once(entries_[tensor]->once, [&] { prepare(tensor); });
  return {views_[tensor].dtype, entries_[tensor]->data};
}

void MappedTensors::release(size_t tensor) {
  if (!views_[tensor].contiguous() || entries_[tensor]->data == nullptr) return;
  // Whole pages of the file; they come back from it when they are touched again.
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(entries_[tensor]->data);
  const uintptr_t end = begin + static_cast<uintptr_t>(views_[tensor].num_bytes());
  const uintptr_t first = begin / page * page;
  if (first < end) ::madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
}

}  // namespace espalier::convert
