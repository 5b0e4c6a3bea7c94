#include "data/sample_index.h"

#include <algorithm>
#include <future>
#include <limits>
#include <new>
#include <numeric>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/thread_pool.h"
#include "data/internal/sample_starts.h"
#include "data/numpy_random.h"

namespace espalier::data {
namespace {

constexpr double kSeparateBelow = 0.95;  // of an epoch's samples
constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
// numpy's dtype in upstream: uint32 below 2^32 - 2 samples.
constexpr int64_t kMaxUint32Samples = (int64_t{1} << 32) - 2;

// Opening a store does not walk its sizes; here all are read.
int64_t sum_of_sizes(const DocumentSizes& sizes, const SampleRequest& request) {
  int64_t sum = 0, signs = 0;
  for (int64_t document = request.documents.begin; document < request.documents.end; ++document) {
    sum += sizes[document];
    signs |= sizes[document];
  }
  if (signs >= 0) return sum;
  int64_t document = request.documents.begin;
  while (sizes[document] >= 0) ++document;
  throw UserError(concat(request.name, ": size of sequence ", document, ": expected 0 or more, found ", sizes[document],
                         ". The .idx is damaged; 'espalier data check' reads all of it."),
                  ExitCode::kBadData);
}

void check_request(const DocumentSizes& sizes, const SampleRequest& request) {
  const auto [begin, end] = request.documents;
  ESPALIER_CHECK(begin >= 0 && begin <= end && end <= sizes.count(), begin, " ", end);
  ESPALIER_CHECK(request.sequence_length > 0 && request.num_samples >= 0);
}

// Threads that so much work is worth.
int num_threads_for(int64_t num_values) {
  constexpr int64_t kValuesOfAThread = 1 << 18;
  return static_cast<int>(std::clamp<int64_t>(num_values / kValuesOfAThread, 1, num_usable_cores()));
}

// Shuffles one row after another with the draws of one generator. The draws are few next to the swaps and depend on the
// lengths alone: with a pool each row is shuffled by one of its threads, with a copy of the generator, while this one
// draws ahead to where the next row's begin.
class Shuffles {
 public:
  Shuffles(uint32_t seed, ThreadPool* pool, Progress& progress) : random_(seed), pool_(pool), progress_(progress) {}
  ~Shuffles() {
    for (auto& row : rows_)
      if (row.valid()) row.wait();
  }
  Shuffles(const Shuffles&) = delete;
  Shuffles& operator=(const Shuffles&) = delete;

  // The numbers from `first` on, `period` of them, then again until `values` are full, all shuffled together.
  template <class Value>
  void add(std::span<Value> values, int64_t first, int64_t period) {
    const auto shuffle = [values, first, period, &progress = progress_](NumpyRandom& random) {
      for (size_t at = 0; at < values.size(); at += static_cast<size_t>(period)) {
        const auto epoch = values.subspan(at, std::min(static_cast<size_t>(period), values.size() - at));
        std::iota(epoch.begin(), epoch.end(), static_cast<Value>(first));
      }
      random.shuffle(values, &progress);
    };
    if (pool_ == nullptr) return shuffle(random_);
    rows_.push_back(pool_->submit([shuffle, random = random_]() mutable { shuffle(random); }));
    random_.skip_shuffle(values.size());
  }

  // Waits until the first `num_rows` rows are shuffled.
  void wait_for(size_t num_rows) {
    for (size_t row = 0; row < std::min(num_rows, rows_.size()); ++row)
      if (rows_[row].valid()) rows_[row].get();
  }

 private:
  NumpyRandom random_;
  ThreadPool* pool_;
  Progress& progress_;
  std::vector<std::future<void>> rows_;
};

}  // namespace

EpochPlan EpochPlan::make(int64_t tokens_per_epoch, int64_t sequence_length, int64_t num_samples) {
  ESPALIER_CHECK(tokens_per_epoch > 0 && sequence_length > 0 && num_samples >= 0);
  if (num_samples > (std::numeric_limits<int64_t>::max() - tokens_per_epoch) / 2 / sequence_length)
    throw UserError(
        concat(format_count(num_samples), " samples of ", sequence_length, " tokens are more than 2^62 tokens"),
        ExitCode::kUsage);
  // A sample takes sequence_length tokens; one more token at the end is the last label.
  const auto samples_of = [&](int64_t epochs) { return (epochs * tokens_per_epoch - 1) / sequence_length; };
  const int64_t tokens = num_samples * sequence_length + 1;
  EpochPlan plan;
  plan.tokens_per_epoch = tokens_per_epoch;
  plan.num_epochs = (tokens + tokens_per_epoch - 1) / tokens_per_epoch;
  plan.num_samples = samples_of(plan.num_epochs);
  plan.num_leading_samples = plan.num_samples;
  if (plan.num_epochs > 1) {
    const int64_t before_last = samples_of(plan.num_epochs - 1);
    const auto enough = static_cast<int64_t>(kSeparateBelow * static_cast<double>(samples_of(1)));
    plan.separate_last_epoch = num_samples - before_last < enough;
    if (plan.separate_last_epoch) plan.num_leading_samples = before_last;
  }
  return plan;
}

namespace {

[[noreturn]] void refuse_for_memory(const SampleRequest& request, const EpochPlan& plan) {
  throw UserError(concat(request.name, ": the order of ", format_count(plan.num_samples), " samples (",
                         format_count(plan.num_epochs), " epochs) does not fit into memory. Ask for fewer steps or ",
                         "samples, of training or of --eval-iters, or use --sample-order implicit, which keeps none"),
                  ExitCode::kUsage);
}

}  // namespace

SampleIndex SampleIndex::build(const DocumentSizes& sizes, const SampleRequest& request) {
  SampleIndex index(sizes, request);
  try {
    index.fill(request);
  } catch (const std::bad_alloc&) {
    refuse_for_memory(request, index.plan_);
  }
  return index;
}

SampleIndex::SampleIndex(const DocumentSizes& sizes, const SampleRequest& request) : sizes_(sizes) {
  check_request(sizes, request);
  const auto [begin, end] = request.documents;
  const int64_t tokens = sum_of_sizes(sizes, request);
  if (tokens == 0)
    throw UserError(concat(request.name, ": documents ", begin, " to ", end, " (of ", sizes.count(),
                           ") hold 0 tokens, so no sample of ", request.sequence_length,
                           " tokens can be made. Give this set more documents."),
                    ExitCode::kBadData);
  plan_ = EpochPlan::make(tokens, request.sequence_length, request.num_samples);
  const int64_t positions = plan_.num_epochs * request.documents.size();
  const auto narrow = [](int64_t largest) {
    return largest <= kMaxInt32 ? IndexArray::Type::kInt32 : IndexArray::Type::kInt64;
  };
  try {
    documents_ = IndexArray(narrow(end), positions);
    starts_ = IndexArray(narrow(positions), plan_.num_samples + 1, 2);
    order_ = IndexArray(plan_.num_samples < kMaxUint32Samples ? IndexArray::Type::kUint32 : IndexArray::Type::kInt64,
                        plan_.num_samples);
  } catch (const std::bad_alloc&) {
    refuse_for_memory(request, plan_);
  }
}

void SampleIndex::fill(const SampleRequest& request) {
  Progress progress(concat("order samples of ", request.name), 2 * documents_.size() + size(), Progress::Unit::kItems,
                    "steps");
  const int num_threads = num_threads_for(documents_.size() + size());
  std::optional<ThreadPool> threads;
  if (num_threads > 1) threads.emplace(num_threads);
  ThreadPool* const pool = threads ? &*threads : nullptr;

  const int64_t per_epoch = request.documents.size();
  const auto leading = static_cast<size_t>(documents_.size() - (plan_.separate_last_epoch ? per_epoch : 0));
  const auto leading_samples = static_cast<size_t>(plan_.num_leading_samples);
  Shuffles shuffles(request.seed, pool, progress);
  documents_.visit([&](auto values) {
    shuffles.add(values.first(leading), request.documents.begin, per_epoch);
    shuffles.add(values.subspan(leading), request.documents.begin, per_epoch);
  });
  order_.visit([&](auto values) {
    shuffles.add(values.first(leading_samples), 0, size());
    shuffles.add(values.subspan(leading_samples), plan_.num_leading_samples, size());
  });
  shuffles.wait_for(2);  // the rows of documents
  internal::find_sample_starts({sizes_, request.documents, documents_, request.sequence_length}, starts_, pool,
                               progress);
  shuffles.wait_for(4);
  progress.finish(concat(format_count(size()), " samples of ", format_count(plan_.num_epochs), " epochs"));
}

void SampleIndex::spans(int64_t sample, std::vector<DocumentSpan>& spans) const {
  ESPALIER_CHECK(sample >= 0 && sample < size(), "sample ", sample, " of ", size());
  spans.clear();
  const int64_t at = order_[sample];
  const int64_t first = starts_[2 * at], last = starts_[2 * at + 2];
  for (int64_t position = first; position <= last; ++position) {
    const int64_t document = documents_[position];
    const int64_t begin = position == first ? starts_[2 * at + 1] : 0;
    const int64_t end = position == last ? starts_[2 * at + 3] + 1 : sizes_[document];
    if (end > begin) spans.push_back({document, begin, end - begin});
  }
}

}  // namespace espalier::data
