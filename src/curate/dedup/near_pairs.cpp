#include "curate/dedup/near_pairs.h"

namespace espalier::curate {

NearPairs::NearPairs(const std::filesystem::path& folder, const Setting& setting)
    : folder_(folder), setting_(setting), texts_(folder / "texts"), writer_(folder / "places") {}

NearPairs::~NearPairs() {
  std::error_code ignored;  // the folder goes away as a whole
  for (const char* name : {"texts", "places"}) std::filesystem::remove(folder_ / name, ignored);
}

void NearPairs::add(uint64_t node, std::string_view text) {
  constexpr size_t kBuffer = size_t{1} << 20;
  writer_->add({node, offset_, static_cast<int64_t>(text.size())});
  offset_ += static_cast<int64_t>(text.size());
  pending_ += text;
  if (pending_.size() < kBuffer) return;
  texts_->write(pending_.data(), pending_.size());
  pending_.clear();
}

void NearPairs::finish_texts() {
  texts_->write(pending_.data(), pending_.size());
  std::string().swap(pending_);
  texts_->close();
  writer_->close();
  writer_.reset();
  input_.emplace(folder_ / "texts");
  places_ = SortedRecords<Place>(folder_ / "places");
}

std::shared_ptr<const ShingleSet> NearPairs::set_of(uint64_t node) {
  constexpr int64_t kBytesOfEntry = 128;
  const auto found = cache_.find(node);
  if (found != cache_.end()) return found->second;
  const Place& place = places_.of(node).front();
  std::string text(static_cast<size_t>(place.size), '\0');
  input_->read_at(text.data(), text.size(), place.offset);
  auto set = std::make_shared<const ShingleSet>(setting_.make_set(text, setting_.parameter));
  const int64_t bytes = kBytesOfEntry + static_cast<int64_t>(set->capacity() * sizeof(uint64_t));
  if (cached_bytes_ + bytes > setting_.memory_bytes) {
    cache_.clear();
    cached_bytes_ = 0;
  }
  cached_bytes_ += bytes;
  cache_.emplace(node, set);
  return set;
}

}  // namespace espalier::curate
