#include "data/sample_index.h"

#include <algorithm>
#include <limits>
#include <new>
#include <numeric>

#include "base/error.h"
#include "base/format.h"
#include "data/numpy_random.h"

namespace espalier::data {
namespace {

constexpr double kSeparateBelow = 0.95;  // of an epoch's samples
constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
// numpy's dtype in upstream: uint32 below 2^32 - 2 samples.
constexpr int64_t kMaxUint32Samples = (int64_t{1} << 32) - 2;

// Opening a store does not walk its sizes; here all are read.
int64_t sum_of_sizes(const DocumentSizes& sizes, const SampleRequest& request) {
  int64_t sum = 0;
  for (int64_t document = request.documents.begin; document < request.documents.end; ++document) {
    const int64_t size = sizes[document];
    if (size < 0)
      throw UserError(concat(request.name, ": size of sequence ", document, ": expected 0 or more, found ", size,
                             ". The .idx is damaged; 'espalier data check' reads all of it."),
                      ExitCode::kBadData);
    sum += size;
  }
  return sum;
}

void check_request(const DocumentSizes& sizes, const SampleRequest& request) {
  const auto [begin, end] = request.documents;
  ESPALIER_CHECK(begin >= 0 && begin <= end && end <= sizes.count(), begin, " ", end);
  ESPALIER_CHECK(request.sequence_length > 0 && request.num_samples >= 0);
}

// Writes `copies` times the numbers of the range, then shuffles them all together.
template <class Value>
void fill_epochs(std::span<Value> values, const DocumentRange& documents, NumpyRandom& random, Progress& progress) {
  for (size_t at = 0; at < values.size(); at += static_cast<size_t>(documents.size()))
    std::iota(values.begin() + at, values.begin() + at + documents.size(), static_cast<Value>(documents.begin));
  random.shuffle(values, &progress);
}

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

SampleIndex SampleIndex::build(const DocumentSizes& sizes, const SampleRequest& request) {
  SampleIndex index(sizes, request);
  index.fill(request);
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
    throw UserError(concat(request.name, ": the order of ", format_count(plan_.num_samples), " samples (",
                           format_count(plan_.num_epochs), " epochs) does not fit into memory. Ask for fewer steps or ",
                           "samples, of training or of --eval-iters, or use --sample-order implicit, which keeps none"),
                    ExitCode::kUsage);
  }
}

void SampleIndex::fill(const SampleRequest& request) {
  Progress progress(concat("order samples of ", request.name), documents_.size() + 2 * size(), Progress::Unit::kItems,
                    "steps");
  NumpyRandom random(request.seed);  // serves first the documents, then the samples
  const auto in_leading_epochs =
      static_cast<size_t>(documents_.size() - (plan_.separate_last_epoch ? request.documents.size() : 0));
  documents_.visit([&](auto values) {
    fill_epochs(values.first(in_leading_epochs), request.documents, random, progress);
    if (plan_.separate_last_epoch) fill_epochs(values.subspan(in_leading_epochs), request.documents, random, progress);
  });
  fill_starts(request.sequence_length, progress);
  order_.visit([&](auto values) {
    std::iota(values.begin(), values.end(), 0);
    random.shuffle(values.first(static_cast<size_t>(plan_.num_leading_samples)), &progress);
    random.shuffle(values.subspan(static_cast<size_t>(plan_.num_leading_samples)), &progress);
  });
  progress.finish(concat(format_count(size()), " samples of ", format_count(plan_.num_epochs), " epochs"));
}

// Walks the documents in the order read and notes where each sample starts. The size of a document is a random access
// into a large table, so those ahead are fetched early.
void SampleIndex::fill_starts(int64_t sequence_length, Progress& progress) {
  constexpr int64_t kAhead = 32, kReportEvery = 1 << 16;
  const auto walk = [&](auto documents, auto starts) {
    const auto last = static_cast<int64_t>(documents.size()) - 1;
    int64_t position = 0, offset = 0;
    starts[0] = starts[1] = 0;
    for (int64_t sample = 1; sample <= size(); ++sample) {
      // The sample ends on the token that the next one starts with.
      int64_t needed = sequence_length;
      for (;;) {
        const int64_t left = sizes_[documents[position]] - offset;  // may be 0: an empty document
        if (needed < left) break;
        needed -= left;
        ++position, offset = 0;
        __builtin_prefetch(sizes_.address(documents[std::min(position + kAhead, last)]));
      }
      offset += needed;
      starts[2 * sample] = static_cast<typename decltype(starts)::value_type>(position);
      starts[2 * sample + 1] = static_cast<typename decltype(starts)::value_type>(offset);
      if (sample % kReportEvery == 0) progress.advance(kReportEvery);
    }
    progress.advance(size() % kReportEvery);
  };
  documents_.visit([&](auto documents) { starts_.visit([&](auto starts) { walk(documents, starts); }); });
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
