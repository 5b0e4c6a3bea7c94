#include "data/store_check.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <limits>
#include <mutex>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/thread_pool.h"

namespace espalier::data {
namespace {

constexpr int64_t kPieceBytes = 4 << 20;
constexpr int64_t kMostTokensOfARoundTrip = 1'000'000;

// The compiler makes vector code of both loops: the compared values are of the same width as the lanes.
template <class Id>
struct Extremes {
  Id smallest = std::numeric_limits<Id>::max();
  Id largest = std::numeric_limits<Id>::min();

  void add(const Id* ids, int64_t count) {
    constexpr int64_t kLanes = 64 / sizeof(Id);
    Id low[kLanes], high[kLanes];
    std::fill_n(low, kLanes, smallest);
    std::fill_n(high, kLanes, largest);
    int64_t at = 0;
    for (; at + kLanes <= count; at += kLanes)
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        const Id id = ids[at + lane];
        low[lane] = id < low[lane] ? id : low[lane];
        high[lane] = id > high[lane] ? id : high[lane];
      }
    for (; at < count; ++at) low[0] = std::min(low[0], ids[at]), high[0] = std::max(high[0], ids[at]);
    smallest = *std::min_element(low, low + kLanes);
    largest = *std::max_element(high, high + kLanes);
  }
};

// The sequence that holds a token of the file, by bisection: starts ascend. Empty sequences begin where the next does.
int64_t sequence_of(const TokenIndex& index, int64_t byte) {
  int64_t low = 0, high = index.num_sequences();  // start(low) <= byte < start(high)
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (index.start_bytes(middle) <= byte ? low : high) = middle;
  }
  return low;
}

template <class Id>
class IdScan {
 public:
  IdScan(const TokenStore& store, std::optional<int64_t> vocab_size, Progress& progress)
      : store_(store), file_(store.files().tokens), progress_(progress) {
    // A limit beyond the type is none.
    if (vocab_size && *vocab_size - 1 < limit_) limit_ = *vocab_size - 1;
    num_pieces_ = (store.num_bytes() + kPieceBytes - 1) / kPieceBytes;
  }

  IdRange run(int64_t threads) {
    threads = std::max<int64_t>(1, std::min(threads, num_pieces_));
    {
      ThreadPool pool(static_cast<int>(threads));
      std::vector<std::future<void>> done;
      for (int64_t thread = 0; thread < threads; ++thread) done.push_back(pool.submit([this] { scan(); }));
      for (std::future<void>& one : done) one.get();
    }
    if (first_bad_piece_ < num_pieces_) report();
    if (store_.num_tokens() == 0) return {};
    return {all_.smallest, all_.largest};
  }

 private:
  void scan() {
    std::vector<Id> ids(kPieceBytes / sizeof(Id));
    Extremes<Id> own;
    // Pieces after a bad one need not be read; those before it must, for the first of all to be found.
    for (int64_t piece; (piece = next_piece_++) < num_pieces_ && piece < first_bad_piece_;) {
      const int64_t count = read(piece, ids);
      Extremes<Id> here;
      here.add(ids.data(), count);
      if (is_bad(here.smallest) || is_bad(here.largest)) {
        int64_t known = first_bad_piece_;
        while (piece < known && !first_bad_piece_.compare_exchange_weak(known, piece)) {
        }
      }
      own.smallest = std::min(own.smallest, here.smallest);
      own.largest = std::max(own.largest, here.largest);
      progress_.advance(count * static_cast<int64_t>(sizeof(Id)));
    }
    const std::lock_guard lock(mutex_);
    all_.smallest = std::min(all_.smallest, own.smallest);
    all_.largest = std::max(all_.largest, own.largest);
  }

  int64_t read(int64_t piece, std::vector<Id>& ids) const {
    const int64_t offset = piece * kPieceBytes;
    const int64_t bytes = std::min(kPieceBytes, store_.num_bytes() - offset);
    file_.read_at(ids.data(), static_cast<size_t>(bytes), offset);
    return bytes / static_cast<int64_t>(sizeof(Id));
  }

  bool is_bad(Id id) const { return static_cast<int64_t>(id) < 0 || static_cast<int64_t>(id) > limit_; }

  [[noreturn]] void report() const {
    std::vector<Id> ids(kPieceBytes / sizeof(Id));
    const int64_t count = read(first_bad_piece_, ids);
    const int64_t at = std::find_if(ids.begin(), ids.begin() + count, [&](Id id) { return is_bad(id); }) - ids.begin();
    const int64_t byte = first_bad_piece_ * kPieceBytes + at * static_cast<int64_t>(sizeof(Id));
    const int64_t sequence = sequence_of(store_.index(), byte);
    const int64_t token = (byte - store_.index().start_bytes(sequence)) / static_cast<int64_t>(sizeof(Id));
    throw UserError(concat(store_.files().tokens, ": id of token ", token, " of sequence ", sequence, " (byte ", byte,
                           "): expected 0 to ", limit_, ", found ", static_cast<int64_t>(ids[static_cast<size_t>(at)]),
                           ". The data was made with another tokenizer, or is damaged."),
                    ExitCode::kBadData);
  }

  const TokenStore& store_;
  const InputFile file_;
  Progress& progress_;
  int64_t limit_ = std::numeric_limits<Id>::max();
  int64_t num_pieces_ = 0;
  std::atomic<int64_t> next_piece_{0}, first_bad_piece_{std::numeric_limits<int64_t>::max()};
  std::mutex mutex_;
  Extremes<Id> all_;
};

std::vector<int32_t> ids_of(const TokenStore& store, int64_t document) {
  std::vector<int32_t> ids;
  for (int64_t sequence = store.first_sequence(document); sequence < store.first_sequence(document + 1); ++sequence) {
    const size_t held = ids.size();
    ids.resize(held + static_cast<size_t>(store.size(sequence)));
    store.read(sequence, 0, store.size(sequence), ids.data() + held);
  }
  return ids;
}

[[noreturn]] void report_difference(const TokenStore& store, int64_t document, std::span<const int32_t> expected,
                                    std::span<const int32_t> found, const text::Tokenizer& tokenizer) {
  const auto [first, other] = std::mismatch(expected.begin(), expected.end(), found.begin(), found.end());
  const auto show = [&](std::span<const int32_t> ids, auto at) {
    return at == ids.end() ? std::string("the end") : concat(*at, " ('", tokenizer.id_to_piece(*at), "')");
  };
  throw UserError(concat(store.files().tokens, ": document ", document, ": its text, encoded again, differs at token ",
                         first - expected.begin(), ": expected ", show(expected, first), " as in the file, found ",
                         show(found, other), ". The data was made with another tokenizer than ",
                         tokenizer.description(), ", or its text had been changed after it was tokenized."),
                  ExitCode::kBadData);
}

}  // namespace

IdRange check_ids(const TokenStore& store, std::optional<int64_t> vocab_size, int64_t threads, Progress& progress) {
  if (store.type() == TokenType::kUint16) return IdScan<uint16_t>(store, vocab_size, progress).run(threads);
  return IdScan<int32_t>(store, vocab_size, progress).run(threads);
}

int64_t count_empty_documents(const TokenStore& store) {
  int64_t count = 0;
  for (int64_t document = 0; document < store.num_documents(); ++document) {
    bool has_tokens = false;
    for (int64_t at = store.first_sequence(document); at < store.first_sequence(document + 1) && !has_tokens; ++at)
      has_tokens = store.size(at) > 0;
    count += !has_tokens;
  }
  return count;
}

DocumentEnds count_document_ends(const TokenStore& store, int32_t eod) {
  DocumentEnds ends;
  for (int64_t document = 0; document < store.num_documents(); ++document) {
    int64_t last = store.first_sequence(document + 1) - 1;
    while (last >= store.first_sequence(document) && store.size(last) == 0) --last;
    if (last < store.first_sequence(document)) continue;
    int32_t id;
    store.read(last, store.size(last) - 1, 1, &id);
    ++ends.num_documents;
    ends.num_ended += id == eod;
  }
  return ends;
}

RoundTrip check_round_trip(const TokenStore& store, const text::Tokenizer& tokenizer, int64_t num_documents) {
  RoundTrip result;
  const std::unique_ptr<text::Encoder> encoder = tokenizer.new_encoder();
  const int64_t count = std::min(num_documents, store.num_documents());
  std::vector<int32_t> again;
  for (int64_t sample = 0; sample < count; ++sample) {
    // The first and the last are among them.
    const int64_t document = count == 1 ? 0 : (store.num_documents() - 1) * sample / (count - 1);
    std::vector<int32_t> ids = ids_of(store, document);
    if (static_cast<int64_t>(ids.size()) > kMostTokensOfARoundTrip) continue;
    if (!ids.empty() && tokenizer.eod() && ids.back() == *tokenizer.eod()) ids.pop_back();
    again.clear();
    encoder->encode(tokenizer.decode(ids), again);
    if (again != ids) report_difference(store, document, ids, again, tokenizer);
    ++result.num_documents;
    result.num_tokens += static_cast<int64_t>(ids.size());
  }
  return result;
}

}  // namespace espalier::data
