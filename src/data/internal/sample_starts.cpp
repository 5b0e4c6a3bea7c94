#include "data/internal/sample_starts.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <memory>
#include <vector>

#include "data/internal/large_memory.h"

namespace espalier::data::internal {
namespace {

// The sizes of a range of documents in 2 bytes each: twice as many are in the cache when they are looked up in the
// order read, one after another from anywhere. Those that need more are looked up where they come from.
class NarrowSizes {
 public:
  NarrowSizes(const DocumentSizes& sizes, const DocumentRange& range)
      : sizes_(sizes),
        range_(range),
        memory_(large_memory(static_cast<size_t>(range.size()) * sizeof(uint16_t))),
        values_(static_cast<uint16_t*>(memory_.get())) {}

  // Any number of threads, each of which takes parts until none are left.
  void fill() {
    constexpr int64_t kPart = 1 << 16;
    for (int64_t first = next_.fetch_add(kPart); first < range_.size(); first = next_.fetch_add(kPart)) {
      const int64_t end = std::min(first + kPart, range_.size());
      for (int64_t at = first; at < end; ++at)
        values_[at] = static_cast<uint16_t>(std::min<int64_t>(sizes_[range_.begin + at], kWide));
    }
  }

  int64_t operator[](int64_t document) const {
    const uint16_t narrow = values_[document - range_.begin];
    return narrow == kWide ? sizes_[document] : narrow;
  }

 private:
  static constexpr uint16_t kWide = 0xffff;

  const DocumentSizes& sizes_;
  const DocumentRange range_;
  std::shared_ptr<void> memory_;
  uint16_t* values_;
  std::atomic<int64_t> next_{0};
};

// The row in chunks, which the threads take in order. What a thread does alone is most of the work: it looks up the
// sizes of its documents. Their sum is added to the tokens before the chunk, which the thread of the chunk before
// passes on as soon as it has added its own.
template <class Document, class Start>
class Walk {
 public:
  Walk(const NarrowSizes& sizes, std::span<const Document> documents, int64_t sequence_length, std::span<Start> starts,
       Progress& progress)
      : sizes_(sizes),
        documents_(documents),
        sequence_length_(sequence_length),
        starts_(starts),
        progress_(progress),
        num_chunks_((static_cast<int64_t>(documents.size()) + kChunk - 1) / kChunk),
        tokens_before_(static_cast<size_t>(num_chunks_) + 1) {
    for (auto& tokens : tokens_before_) tokens.store(kUnknown, std::memory_order_relaxed);
    tokens_before_[0] = 0;
    starts_[0] = starts_[1] = 0;
  }

  // Any number of threads.
  void run() {
    const auto sizes = std::make_unique_for_overwrite<int32_t[]>(kChunk);
    for (int64_t chunk = next_chunk_++; chunk < num_chunks_; chunk = next_chunk_++) {
      const int64_t first = chunk * kChunk;
      const int64_t count = std::min(kChunk, static_cast<int64_t>(documents_.size()) - first);
      const Document* const documents = documents_.data() + first;
      int64_t tokens = 0;
      for (int64_t at = 0; at < count; ++at) {
        const int64_t size = sizes_[documents[at]];
        sizes[static_cast<size_t>(at)] = static_cast<int32_t>(size);
        tokens += size;
      }
      auto& tokens_before = tokens_before_[static_cast<size_t>(chunk)];
      auto& tokens_after = tokens_before_[static_cast<size_t>(chunk) + 1];
      tokens_before.wait(kUnknown);
      const int64_t before = tokens_before;
      tokens_after = before + tokens;
      tokens_after.notify_all();
      note_starts(first, sizes.get(), before, before + tokens);
      progress_.advance(count);
    }
  }

 private:
  static constexpr int64_t kChunk = 1 << 14, kUnknown = -1;

  // The samples that begin at tokens [begin, end), which are those of the documents from `position` on.
  void note_starts(int64_t position, const int32_t* sizes, int64_t begin, int64_t end) const {
    const auto first_from = [&](int64_t token) { return (token + sequence_length_ - 1) / sequence_length_; };
    const int64_t first = std::max<int64_t>(1, first_from(begin));
    const int64_t last = std::min(first_from(end), static_cast<int64_t>(starts_.size()) / 2);
    int64_t next = first * sequence_length_, document_end = begin;  // tokens
    Start* out = starts_.data() + 2 * first;
    Start* const out_end = starts_.data() + 2 * last;
    for (; out < out_end; ++position) {
      const int64_t document_begin = document_end;
      document_end += *sizes++;
      const auto note = [&] {
        out[0] = static_cast<Start>(position);
        out[1] = static_cast<Start>(next - document_begin);
      };
      // Whether a sample begins in a document is as good as random: it is noted in any case, and kept if it does.
      note();
      const int64_t begins = next < document_end;
      out += 2 * begins;
      next += sequence_length_ & -begins;
      for (; next < document_end && out < out_end; out += 2, next += sequence_length_) note();
    }
  }

  const NarrowSizes& sizes_;
  std::span<const Document> documents_;
  int64_t sequence_length_;
  std::span<Start> starts_;
  Progress& progress_;
  int64_t num_chunks_;
  std::atomic<int64_t> next_chunk_{0};
  std::vector<std::atomic<int64_t>> tokens_before_;  // of each chunk, and of all
};

// Calls `work` on each thread of the pool; on this one without a pool.
template <class Work>
void run_on_all(ThreadPool* pool, const Work& work) {
  if (pool == nullptr) return work();
  std::vector<std::future<void>> threads;
  for (int thread = 0; thread < pool->num_threads(); ++thread) threads.push_back(pool->submit([&work] { work(); }));
  for (auto& thread : threads) thread.wait();  // all of them: they use what ends with the first exception
  for (auto& thread : threads) thread.get();
}

}  // namespace

void find_sample_starts(const SampleRow& row, IndexArray& starts, ThreadPool* pool, Progress& progress) {
  NarrowSizes sizes(row.sizes, row.range);
  run_on_all(pool, [&] { sizes.fill(); });
  row.documents.visit([&](auto document_values) {
    starts.visit([&](auto start_values) {
      Walk walk(sizes, document_values, row.sequence_length, start_values, progress);
      run_on_all(pool, [&] { walk.run(); });
    });
  });
}

}  // namespace espalier::data::internal
