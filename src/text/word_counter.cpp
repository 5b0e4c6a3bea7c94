#include "text/word_counter.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/error.h"
#include "base/hash.h"

namespace espalier::text {
namespace {

constexpr size_t kFirstSlots = 64;
constexpr int64_t kMinBlockBytes = 1 << 10, kMaxBlockBytes = 1 << 20;
constexpr int64_t kMinReadBytes = 4 << 10, kMaxReadBytes = 1 << 20;

// A word in a run: this, then its bytes.
struct RunHeader {
  int64_t count;
  int64_t length;
};

// In eighths of the slots: beyond 6, chains of neighbours get long.
bool is_crowded(size_t num_words, size_t num_slots) { return num_words * 8 > num_slots * 6; }

}  // namespace

WordCounter::WordCounter(int64_t max_bytes, std::filesystem::path spill_folder)
    : max_bytes_(max_bytes),
      block_bytes_(static_cast<size_t>(std::clamp(max_bytes / 16, kMinBlockBytes, kMaxBlockBytes))),
      spill_folder_(std::move(spill_folder)),
      slots_(kFirstSlots) {}

void WordCounter::add(std::string_view word) {
  ESPALIER_CHECK(!sorted_, "a word after the count was closed");
  ESPALIER_CHECK(word.size() <= UINT32_MAX);
  const auto hash = static_cast<uint32_t>(hash64(word.data(), word.size()));
  if (Entry* const entry = slots_[find(word, hash)]) {
    ++entry->count;
    return;
  }
  if (try_insert(word, hash, /*whatever_it_takes=*/false)) return;
  spill();
  try_insert(word, hash, /*whatever_it_takes=*/true);
}

// The slot of `word`, or the empty one where it belongs.
size_t WordCounter::find(std::string_view word, uint32_t hash) const {
  const size_t mask = slots_.size() - 1;
  for (size_t slot = hash & mask;; slot = (slot + 1) & mask) {
    const Entry* const entry = slots_[slot];
    if (entry == nullptr || (entry->hash == hash && entry->word() == word)) return slot;
  }
}

// False, with nothing changed, if the bound is in the way.
bool WordCounter::try_insert(std::string_view word, uint32_t hash, bool whatever_it_takes) {
  const size_t size = (sizeof(Entry) + word.size() + alignof(Entry) - 1) / alignof(Entry) * alignof(Entry);
  const bool new_block = size > static_cast<size_t>(free_end_ - free_);
  const bool crowded = is_crowded(num_words_ + 1, slots_.size());
  const size_t block_size = std::max(size, block_bytes_);
  // While the slots grow, the old ones exist as well.
  // NOLINTNEXTLINE(bugprone-sizeof-expression): the slots are pointers
  const size_t more = (new_block ? block_size : 0) + (crowded ? 2 * slots_.size() * sizeof(Entry*) : 0);
  if (!whatever_it_takes && table_bytes() + static_cast<int64_t>(more) > max_bytes_) return false;
  if (new_block) {
    arena_.push_back(std::make_unique_for_overwrite<char[]>(block_size));
    arena_bytes_ += static_cast<int64_t>(block_size);
    free_ = arena_.back().get();
    free_end_ = free_ + block_size;
  }
  if (crowded) grow_slots();
  auto* const entry = new (free_) Entry{1, hash, static_cast<uint32_t>(word.size())};
  std::memcpy(static_cast<void*>(entry + 1), word.data(), word.size());
  free_ += size;
  slots_[find(word, hash)] = entry;
  ++num_words_;
  return true;
}

void WordCounter::grow_slots() {
  std::vector<Entry*> old(slots_.size() * 2);
  old.swap(slots_);
  const size_t mask = slots_.size() - 1;
  for (Entry* const entry : old) {
    if (entry == nullptr) continue;
    size_t slot = entry->hash & mask;
    while (slots_[slot] != nullptr) slot = (slot + 1) & mask;
    slots_[slot] = entry;
  }
}

// In place, so that it takes no memory.
void WordCounter::sort() {
  if (sorted_) return;
  sorted_ = true;
  const auto end = std::remove(slots_.begin(), slots_.end(), nullptr);
  std::sort(slots_.begin(), end, [](const Entry* a, const Entry* b) { return a->word() < b->word(); });
}

void WordCounter::clear() {
  std::vector<Entry*>(kFirstSlots).swap(slots_);
  arena_.clear();
  arena_bytes_ = 0;
  free_ = free_end_ = nullptr;
  num_words_ = 0;
}

void WordCounter::spill() {
  if (num_words_ == 0) return;
  const bool closed = sorted_;
  sort();
  if (!file_) file_.emplace(spill_folder_);
  const int64_t begin = file_->size();
  for (size_t at = 0; at < num_words_; ++at) {
    const RunHeader header{slots_[at]->count, slots_[at]->length};
    file_->append(&header, sizeof header);
    file_->append(slots_[at] + 1, slots_[at]->length);
  }
  file_->flush();
  runs_.push_back({begin, file_->size()});
  spilled_words_ += static_cast<int64_t>(num_words_);
  clear();
  sorted_ = closed;
}

// A sorted row of words.
class WordCounter::Cursor {
 public:
  virtual ~Cursor() = default;
  virtual bool next() = 0;  // false at the end

  std::string_view word;
  int64_t count = 0;
};

class WordCounter::TableCursor : public Cursor {
 public:
  explicit TableCursor(const WordCounter& counter) : entries_(counter.slots_.data(), counter.num_words_) {}
  bool next() override {
    if (entries_.empty()) return false;
    word = entries_.front()->word();
    count = entries_.front()->count;
    entries_ = entries_.subspan(1);
    return true;
  }

 private:
  std::span<Entry* const> entries_;
};

class WordCounter::RunCursor : public Cursor {
 public:
  RunCursor(const internal::SpillFile& file, Run run, int64_t read_bytes)
      : file_(file), position_(run.begin), end_(run.end), read_bytes_(static_cast<size_t>(read_bytes)) {}
  bool next() override {
    if (at_ == bytes_.size() && position_ == end_) return false;
    RunHeader header;
    hold(sizeof header);
    std::memcpy(&header, bytes_.data() + at_, sizeof header);
    at_ += sizeof header;
    hold(static_cast<size_t>(header.length));
    word = {bytes_.data() + at_, static_cast<size_t>(header.length)};
    at_ += word.size();
    count = header.count;
    return true;
  }

 private:
  // Makes bytes_[at_, at_ + size) valid.
  void hold(size_t size) {
    if (bytes_.size() - at_ >= size) return;
    bytes_.erase(0, at_);
    at_ = 0;
    const size_t kept = bytes_.size();
    const size_t more = std::min(std::max(read_bytes_, size - kept), static_cast<size_t>(end_ - position_));
    bytes_.resize(kept + more);
    file_.read_at(bytes_.data() + kept, more, position_);
    position_ += static_cast<int64_t>(more);
  }

  const internal::SpillFile& file_;
  int64_t position_, end_;  // of what is not in bytes_ yet
  size_t read_bytes_, at_ = 0;
  std::string bytes_;
};

void for_each_word(std::span<WordCounter> counters, const std::function<void(std::string_view, int64_t)>& use,
                   Progress* progress) {
  using Cursor = WordCounter::Cursor;
  size_t num_runs = 0;
  int64_t max_bytes = 0;
  for (WordCounter& counter : counters) {
    counter.sort();
    num_runs += counter.runs_.size();
    max_bytes += counter.max_bytes_;
  }
  // All buffers together: a quarter of what the tables may take.
  const int64_t read_bytes =
      std::clamp(max_bytes / 4 / std::max<int64_t>(1, static_cast<int64_t>(num_runs)), kMinReadBytes, kMaxReadBytes);
  std::vector<std::unique_ptr<Cursor>> heap;
  const auto push = [&heap](std::unique_ptr<Cursor> cursor) {
    if (cursor->next()) heap.push_back(std::move(cursor));
  };
  for (const WordCounter& counter : counters) {
    push(std::make_unique<WordCounter::TableCursor>(counter));
    for (const WordCounter::Run& run : counter.runs_)
      push(std::make_unique<WordCounter::RunCursor>(*counter.file_, run, read_bytes));
  }
  const auto later = [](const auto& a, const auto& b) { return a->word > b->word; };
  std::make_heap(heap.begin(), heap.end(), later);
  std::string word;
  while (!heap.empty()) {
    word = heap.front()->word;
    int64_t count = 0;
    while (!heap.empty() && heap.front()->word == word) {
      count += heap.front()->count;
      if (progress != nullptr) progress->advance(1);
      std::pop_heap(heap.begin(), heap.end(), later);
      if (heap.back()->next())
        std::push_heap(heap.begin(), heap.end(), later);
      else
        heap.pop_back();
    }
    use(word, count);
  }
}

}  // namespace espalier::text
