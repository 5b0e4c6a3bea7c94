// How often each word occurs, in bounded memory.
//
//   WordCounter counter(64 << 20, folder);
//   for (const std::string_view word : words) counter.add(word);
//   for_each_word({&counter, 1}, [](std::string_view word, int64_t count) { ... });
//
// Words live in a hash table. Where one more would exceed the bound, the table is written out as a sorted run and
// emptied; for_each_word merges runs and tables. What it gives does not depend on the bound, nor on how the words were
// spread over several counters.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/progress.h"
#include "text/internal/spill_file.h"

namespace espalier::text {

// For one thread.
class WordCounter {
 public:
  // The table takes at most `max_bytes`, but always one word. Runs go to a nameless file in `spill_folder`.
  WordCounter(int64_t max_bytes, std::filesystem::path spill_folder);

  // A word is any bytes, up to 4 GiB.
  void add(std::string_view word);
  // Writes the table out and gives its memory back.
  void spill();

  // NOLINTNEXTLINE(bugprone-sizeof-expression): the slots are pointers
  int64_t table_bytes() const { return arena_bytes_ + static_cast<int64_t>(slots_.capacity() * sizeof(Entry*)); }
  // Words of the table and of all runs; those of a run may be in others too.
  int64_t num_entries() const { return static_cast<int64_t>(num_words_) + spilled_words_; }
  int64_t spilled_bytes() const { return file_ ? file_->size() : 0; }

 private:
  friend void for_each_word(std::span<WordCounter> counters, const std::function<void(std::string_view, int64_t)>& use,
                            Progress* progress);
  // The head of a word in the arena; its bytes follow.
  struct Entry {
    int64_t count;
    uint32_t hash, length;
    std::string_view word() const { return {reinterpret_cast<const char*>(this + 1), length}; }
  };
  struct Run {
    int64_t begin, end;  // in file_
  };
  class Cursor;
  class RunCursor;
  class TableCursor;

  size_t find(std::string_view word, uint32_t hash) const;
  bool try_insert(std::string_view word, uint32_t hash, bool whatever_it_takes);
  void grow_slots();
  void sort();
  void clear();

  int64_t max_bytes_;
  size_t block_bytes_;
  std::filesystem::path spill_folder_;
  std::vector<Entry*> slots_;  // open addressing, a power of two of them; after sort() the words first, in order
  size_t num_words_ = 0;
  bool sorted_ = false;
  std::vector<std::unique_ptr<char[]>> arena_;
  char *free_ = nullptr, *free_end_ = nullptr;  // in the newest block
  int64_t arena_bytes_ = 0;
  std::optional<internal::SpillFile> file_;
  std::vector<Run> runs_;
  int64_t spilled_words_ = 0;
};

// Calls use(word, count) once for every distinct word of all counters, in ascending order of bytes. May be called
// again; the counters take no more words afterwards. `progress` is advanced by the counters' entries.
void for_each_word(std::span<WordCounter> counters, const std::function<void(std::string_view, int64_t)>& use,
                   Progress* progress = nullptr);

}  // namespace espalier::text
