#include "data/implicit_order.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/format.h"
#include "base/mix64.h"

namespace espalier::data {
namespace {

uint64_t mixed(uint64_t value) { return mix64(value + kMix64Step); }

uint64_t key_of(uint32_t seed, int64_t epoch) { return mixed(mixed(seed) ^ static_cast<uint64_t>(epoch)); }

}  // namespace

KeyedPermutation::KeyedPermutation(int64_t size, uint64_t key) : size_(static_cast<uint64_t>(size)) {
  ESPALIER_CHECK(size > 0);
  half_bits_ = std::max(1, (static_cast<int>(std::bit_width(size_ - 1)) + 1) / 2);
  mask_ = (uint64_t{1} << half_bits_) - 1;
  for (uint64_t& round_key : keys_) round_key = key = mixed(key);
}

uint64_t KeyedPermutation::permute(uint64_t value) const {
  uint64_t left = value >> half_bits_, right = value & mask_;
  for (const uint64_t key : keys_) {
    const uint64_t next = left ^ (mixed(right ^ key) & mask_);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

uint64_t KeyedPermutation::permute_back(uint64_t value) const {
  uint64_t left = value >> half_bits_, right = value & mask_;
  for (int round = kRounds - 1; round >= 0; --round) {
    const uint64_t before = right ^ (mixed(left ^ keys_[round]) & mask_);
    right = left;
    left = before;
  }
  return left << half_bits_ | right;
}

// The network permutes up to four times as many numbers as there are; from one beyond the last it goes on until it
// comes back among them, which leaves a permutation of those.
int64_t KeyedPermutation::at(int64_t number) const {
  auto value = static_cast<uint64_t>(number);
  do value = permute(value);
  while (value >= size_);
  return static_cast<int64_t>(value);
}

int64_t KeyedPermutation::number_of(int64_t image) const {
  auto value = static_cast<uint64_t>(image);
  do value = permute_back(value);
  while (value >= size_);
  return static_cast<int64_t>(value);
}

ImplicitOrder::ImplicitOrder(const TokenIndex& index, const SampleRequest& request)
    : index_(index), documents_(request.documents), sequence_length_(request.sequence_length), seed_(request.seed) {
  ESPALIER_CHECK(sequence_length_ > 0 && 0 <= documents_.begin && documents_.end <= index.num_sequences());
  if (documents_.size() > 0) num_tokens_ = start_of(documents_.end - 1) + index.size(documents_.end - 1);
  samples_per_epoch_ = (num_tokens_ - 1) / sequence_length_;
  if (samples_per_epoch_ <= 0)
    throw UserError(concat(request.name, " holds ", format_count(std::max<int64_t>(num_tokens_, 0)),
                           " tokens, and a sample takes ", format_count(sequence_length_ + 1),
                           ": --sample-order implicit makes no sample of several epochs. Use a shorter --seq-length, "
                           "more data, or --sample-order megatron"),
                    ExitCode::kBadData);
  num_epochs_ = std::max<int64_t>(1, (request.num_samples + samples_per_epoch_ - 1) / samples_per_epoch_);
}

int64_t ImplicitOrder::start_of(int64_t document) const {
  return (index_.start_bytes(document) - index_.start_bytes(documents_.begin)) / bytes_per_token(index_.type());
}

// Of documents that begin at the same place all but the last are empty.
int64_t ImplicitOrder::document_at(int64_t token) const {
  int64_t first = documents_.begin, last = documents_.end;  // the first that begins after the token is among them
  while (first < last) {
    const int64_t middle = first + (last - first) / 2;
    if (start_of(middle) <= token)
      first = middle + 1;
    else
      last = middle;
  }
  return first - 1;
}

KeyedPermutation ImplicitOrder::permutation_of(int64_t epoch) const {
  return {samples_per_epoch_, key_of(seed_, epoch)};
}

int64_t ImplicitOrder::skipped_tokens(int64_t epoch) const {
  const int64_t left_over = num_tokens_ - 1 - samples_per_epoch_ * sequence_length_;
  return static_cast<int64_t>(mixed(key_of(seed_, epoch)) % static_cast<uint64_t>(left_over + 1));
}

void ImplicitOrder::spans(int64_t sample, std::vector<DocumentSpan>& spans) const {
  ESPALIER_CHECK(0 <= sample && sample < size(), "sample ", sample, " of ", size());
  spans.clear();
  const int64_t epoch = sample / samples_per_epoch_;
  const int64_t place = permutation_of(epoch).at(sample % samples_per_epoch_);
  int64_t token = skipped_tokens(epoch) + place * sequence_length_;
  const int64_t end = token + sequence_length_ + 1;
  for (int64_t document = document_at(token); token < end; ++document) {
    const int64_t offset = token - start_of(document);
    const int64_t length = std::min(index_.size(document) - offset, end - token);
    if (length < 0 || (length == 0 && index_.size(document) != 0))
      index_.refuse(concat("the start of sequence ", document), "that of the tokens after the sequence before it",
                    "another one", "Run 'espalier data check' on it");
    if (length > 0) spans.push_back({document, offset, length});
    token += length;
  }
}

std::vector<Sighting> ImplicitOrder::sightings(const DocumentRange& documents) const {
  const DocumentRange range{std::max(documents.begin, documents_.begin), std::min(documents.end, documents_.end)};
  std::vector<Sighting> found;
  if (range.size() <= 0) return found;
  const int64_t begin = start_of(range.begin), end = start_of(range.end - 1) + index_.size(range.end - 1);
  if (begin == end) return found;
  std::vector<DocumentSpan> pieces;
  for (int64_t epoch = 0; epoch < num_epochs_; ++epoch) {
    const KeyedPermutation permutation = permutation_of(epoch);
    const int64_t first = skipped_tokens(epoch);
    // A sample holds the tokens from `first + place * length` to a sequence length after that, both included.
    const int64_t from = std::max<int64_t>(0, (begin - first + sequence_length_ - 1) / sequence_length_ - 1);
    const int64_t last = std::min(samples_per_epoch_ - 1, (end - 1 - first) / sequence_length_);
    for (int64_t place = from; place <= last && end > first; ++place) {
      const int64_t sample = epoch * samples_per_epoch_ + permutation.number_of(place);
      spans(sample, pieces);
      int64_t at = 0;
      for (const DocumentSpan& piece : pieces) {
        if (range.begin <= piece.document && piece.document < range.end) found.push_back({sample, at, piece});
        at += piece.length;
      }
    }
  }
  std::sort(found.begin(), found.end(),
            [](const Sighting& a, const Sighting& b) { return std::pair(a.sample, a.at) < std::pair(b.sample, b.at); });
  return found;
}

}  // namespace espalier::data
