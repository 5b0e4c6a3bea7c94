#include "text/bpe_trainer.h"

#include <algorithm>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <span>

#include "base/error.h"
#include "base/format.h"
#include "base/progress.h"
#include "base/thread_pool.h"
#include "text/internal/merge_learner.h"
#include "text/utf8.h"
#include "text/word_counter.h"

namespace espalier::text {
namespace {

using internal::MergeLearner;

// Documents that one task counts.
struct Batch {
  static constexpr size_t kBytes = size_t{256} << 10;

  std::string bytes;
  std::vector<size_t> ends;  // of the documents
};

struct BatchTally {
  int64_t num_words = 0, num_replaced = 0;
};

BatchTally count_batch(const Batch& batch, PieceRule rule, WordCounter& counter) {
  BatchTally tally;
  std::string repaired;
  std::vector<std::string_view> words;
  size_t begin = 0;
  for (const size_t end : batch.ends) {
    const std::string_view document = std::string_view(batch.bytes).substr(begin, end - begin);
    words.clear();
    cut_pieces(rule, repair_utf8(document, repaired, tally.num_replaced), words);
    for (const std::string_view word : words) counter.add(word);
    tally.num_words += static_cast<int64_t>(words.size());
    begin = end;
  }
  return tally;
}

// A counter for each worker, and the tasks that fill them.
class CountingCrew {
 public:
  explicit CountingCrew(const BpeTrainingOptions& options) : rule_(options.rule) {
    ESPALIER_CHECK(options.workers >= 1);
    for (int64_t worker = 0; worker < options.workers; ++worker) {
      counters_.emplace_back(options.memory_bytes / options.workers, options.spill_folder);
    }
    for (WordCounter& counter : counters_) idle_.push_back(&counter);
  }

  void count_all(const NextDocument& next, TrainedBpe& result) {
    std::deque<std::future<BatchTally>> in_flight;
    const auto take_oldest = [&] {
      const BatchTally tally = in_flight.front().get();
      in_flight.pop_front();
      result.num_words += tally.num_words;
      result.num_replaced += tally.num_replaced;
    };
    ThreadPool pool(static_cast<int>(counters_.size()));
    Batch batch;
    const auto submit = [&] {
      if (in_flight.size() >= 2 * counters_.size()) take_oldest();
      in_flight.push_back(
          pool.submit([this, full = std::make_shared<Batch>(std::move(batch))] { return count(*full); }));
      batch = {};
    };
    for (std::string_view document; next(document);) {
      ++result.num_documents;
      result.num_bytes += static_cast<int64_t>(document.size());
      batch.bytes += document;
      batch.ends.push_back(batch.bytes.size());
      if (batch.bytes.size() >= Batch::kBytes) submit();
    }
    submit();
    while (!in_flight.empty()) take_oldest();
  }

  std::span<WordCounter> counters() { return counters_; }

 private:
  BatchTally count(const Batch& batch) {
    const auto give_back = [this](WordCounter* counter) {
      const std::lock_guard lock(mutex_);
      idle_.push_back(counter);
    };
    const std::unique_ptr<WordCounter, decltype(give_back)> counter(take_idle(), give_back);
    return count_batch(batch, rule_, *counter);
  }

  // There is always one: as many counters as threads.
  WordCounter* take_idle() {
    const std::lock_guard lock(mutex_);
    WordCounter* const counter = idle_.back();
    idle_.pop_back();
    return counter;
  }

  PieceRule rule_;
  std::vector<WordCounter> counters_;
  std::mutex mutex_;
  std::vector<WordCounter*> idle_;
};

struct WordTotals {
  int64_t num_distinct = 0;
  int64_t num_learned = 0, learned_bytes = 0;  // of those that the learner gets
};

bool is_learned(std::string_view word, int64_t count, const BpeTrainingOptions& options) {
  return word.size() >= 2 && count >= options.min_word_frequency;
}

void pass_over(const char* title, std::span<WordCounter> counters,
               const std::function<void(std::string_view, int64_t)>& use) {
  int64_t num_entries = 0;
  for (const WordCounter& counter : counters) num_entries += counter.num_entries();
  Progress progress(title, num_entries, Progress::Unit::kItems, "words");
  for_each_word(counters, use, &progress);
  progress.finish();
}

WordTotals sum_up(std::span<WordCounter> counters, const BpeTrainingOptions& options) {
  WordTotals totals;
  const auto use = [&](std::string_view word, int64_t count) {
    ++totals.num_distinct;
    if (is_learned(word, count, options)) {
      ++totals.num_learned;
      totals.learned_bytes += static_cast<int64_t>(word.size());
    }
  };
  pass_over("merge word counts", counters, use);
  return totals;
}

// Makes room for the learner, or says what it would take.
void fit_into_memory(std::span<WordCounter> counters, const WordTotals& totals, const BpeTrainingOptions& options) {
  const int64_t needed = MergeLearner::needed_bytes(totals.num_learned, totals.learned_bytes, options.min_frequency);
  if (needed > options.memory_bytes) {
    throw UserError(concat("learning merges from ", format_count(totals.num_learned), " distinct words takes about ",
                           format_bytes(static_cast<double>(needed)), ", but --memory is ",
                           format_bytes(static_cast<double>(options.memory_bytes)),
                           ". Raise it, or leave out the rarest words by --min-word-frequency ",
                           options.min_word_frequency + 1, ", which changes the vocabulary a little."));
  }
  int64_t table_bytes = 0;
  for (const WordCounter& counter : counters) table_bytes += counter.table_bytes();
  if (table_bytes + needed <= options.memory_bytes) return;
  for (WordCounter& counter : counters) counter.spill();
}

std::vector<std::string> without_repetitions(const std::vector<std::string>& tokens) {
  std::vector<std::string> result;
  for (const std::string& token : tokens) {
    if (std::find(result.begin(), result.end(), token) == result.end()) result.push_back(token);
  }
  return result;
}

}  // namespace

TrainedBpe train_bpe(const NextDocument& next, const BpeTrainingOptions& options) {
  TrainedBpe result;
  result.special_tokens = without_repetitions(options.special_tokens);
  MergeLearner learner(result.special_tokens, options.min_frequency);
  {
    CountingCrew crew(options);
    crew.count_all(next, result);
    const WordTotals totals = sum_up(crew.counters(), options);
    result.num_distinct_words = totals.num_distinct;
    fit_into_memory(crew.counters(), totals, options);
    for (const WordCounter& counter : crew.counters()) result.spilled_bytes += counter.spilled_bytes();
    learner.reserve(totals.num_learned, totals.learned_bytes);
    pass_over("collect words", crew.counters(), [&](std::string_view word, int64_t count) {
      if (is_learned(word, count, options)) learner.add_word(word, count);
    });
  }
  const int64_t num_first = static_cast<int64_t>(learner.pieces().size());
  Progress progress("learn merges", std::max<int64_t>(0, options.vocab_size - num_first), Progress::Unit::kItems,
                    "merges");
  learner.learn(options.vocab_size, progress);
  progress.finish();
  result.pieces = learner.pieces();
  result.merges = learner.merges();
  return result;
}

}  // namespace espalier::text
