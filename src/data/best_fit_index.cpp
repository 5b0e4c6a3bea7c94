#include "data/best_fit_index.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/progress.h"
#include "data/internal/array_cache.h"
#include "data/numpy_random.h"

namespace espalier::data {
namespace {

constexpr int64_t kWindow = 16384;        // documents that are packed together
constexpr int64_t kMostEmptyShare = 200;  // 1 / 200 of the room
constexpr int64_t kSmallestGap = 32;      // tokens; smaller ones are not worth another cut

struct Piece {
  DocumentSpan span;
  bool is_rest = false;  // of a document that had to be cut
};

struct Row {
  std::vector<int32_t> pieces;
  int64_t room = 0;
};

// Rows by the room that they have; of those with the same, the last comes first.
class RowsByRoom {
 public:
  explicit RowsByRoom(int64_t most) : rows_(static_cast<size_t>(most) + 1), words_(rows_.size() / 64 + 1) {}

  void put(int64_t room, int32_t row) {
    const auto at = static_cast<size_t>(room);
    rows_[at].push_back(row);
    words_[at / 64] |= uint64_t{1} << at % 64;
  }
  // One with the least room that suffices; -1 where there is none.
  int32_t take(int64_t length) {
    const auto first = static_cast<size_t>(length);
    for (size_t word = first / 64; word < words_.size(); ++word) {
      const uint64_t found = word == first / 64 ? words_[word] & (~uint64_t{0} << first % 64) : words_[word];
      if (found == 0) continue;
      const size_t at = word * 64 + static_cast<size_t>(__builtin_ctzll(found));
      const int32_t row = rows_[at].back();
      rows_[at].pop_back();
      if (rows_[at].empty()) words_[word] &= ~(uint64_t{1} << at % 64);
      return row;
    }
    return -1;
  }

 private:
  std::vector<std::vector<int32_t>> rows_;
  std::vector<uint64_t> words_;  // a bit for each room that some row has
};

// The documents of one window.
class Window {
 public:
  explicit Window(int64_t capacity) : capacity_(capacity) {}

  void add(int64_t document, int64_t size) {
    int64_t offset = 0;
    const bool is_cut = size > capacity_;
    for (; size - offset > capacity_; offset += capacity_ - 1) add_row({{document, offset, capacity_}, true});
    // The last token of a full piece begins the rest; where that is all there is of it, it has been a label already.
    if (size - offset == capacity_)
      add_row({{document, offset, capacity_}, is_cut});
    else if (size - offset > (is_cut ? 1 : 0))
      loose_.push_back({{document, offset, size - offset}, is_cut});
  }

  void pack() {
    std::stable_sort(loose_.begin(), loose_.end(),
                     [](const Piece& a, const Piece& b) { return a.span.length > b.span.length; });
    RowsByRoom by_room(capacity_);
    for (const Piece& piece : loose_) {
      const int64_t length = piece.span.length;
      int32_t row = by_room.take(length);
      if (row < 0) {
        row = static_cast<int32_t>(rows_.size());
        rows_.push_back({{}, capacity_});
      }
      put(piece, row);
      if (const int64_t room = rows_[static_cast<size_t>(row)].room; room > 0) by_room.put(room, row);
    }
    divide_rests();
  }

  const std::vector<Piece>& pieces() const { return pieces_; }
  // Those without pieces are none.
  std::vector<Row>& rows() { return rows_; }

 private:
  void add_row(const Piece& piece) {
    rows_.push_back({{}, capacity_});
    put(piece, static_cast<int32_t>(rows_.size()) - 1);
  }
  void put(const Piece& piece, int32_t at) {
    Row& row = rows_[static_cast<size_t>(at)];
    row.pieces.push_back(static_cast<int32_t>(pieces_.size()));
    row.room -= piece.span.length;
    pieces_.push_back(piece);
  }
  bool has_only_rests(const Row& row) const {
    return std::all_of(row.pieces.begin(), row.pieces.end(),
                       [&](int32_t piece) { return pieces_[static_cast<size_t>(piece)].is_rest; });
  }

  void divide_rests();
  bool divide(int32_t row);

  const int64_t capacity_;
  std::vector<Piece> loose_, pieces_;
  std::vector<Row> rows_;
  std::set<std::pair<int64_t, int32_t>> gaps_;  // room and row, of those worth filling
  int64_t sum_of_gaps_ = 0;
};

void Window::divide_rests() {
  int64_t empty = 0;
  std::vector<int32_t> candidates;
  for (size_t at = 0; at < rows_.size(); ++at) {
    const Row& row = rows_[at];
    const auto number = static_cast<int32_t>(at);
    empty += row.room;
    if (row.room > 0 && has_only_rests(row)) candidates.push_back(number);
    if (row.room < kSmallestGap) continue;
    gaps_.emplace(row.room, number);
    sum_of_gaps_ += row.room;
  }
  std::stable_sort(candidates.begin(), candidates.end(), [&](int32_t a, int32_t b) {
    return rows_[static_cast<size_t>(a)].room > rows_[static_cast<size_t>(b)].room;
  });
  auto places = static_cast<int64_t>(rows_.size()) * capacity_;
  for (const int32_t candidate : candidates) {
    if (empty * kMostEmptyShare <= places) return;
    if (!divide(candidate)) continue;  // it has had pieces of others, or they do not suffice for it
    empty = std::accumulate(rows_.begin(), rows_.end(), int64_t{0},
                            [&](int64_t sum, const Row& row) { return sum + (row.pieces.empty() ? 0 : row.room); });
    places -= capacity_;
  }
}

// The pieces of a row into the gaps of others, the largest first. Each cut repeats a token, as all cuts do.
bool Window::divide(int32_t number) {
  Row& row = rows_[static_cast<size_t>(number)];
  const int64_t tokens = capacity_ - row.room;
  const bool is_gap = gaps_.erase({row.room, number}) > 0;
  if (is_gap) sum_of_gaps_ -= row.room;
  const auto num_gaps = static_cast<int64_t>(gaps_.size()), num_pieces = static_cast<int64_t>(row.pieces.size());
  if (tokens + num_gaps + kSmallestGap * num_pieces > sum_of_gaps_) {
    if (is_gap) gaps_.emplace(row.room, number), sum_of_gaps_ += row.room;
    return false;
  }
  for (const int32_t piece : std::exchange(row.pieces, {})) {
    DocumentSpan left = pieces_[static_cast<size_t>(piece)].span;
    while (left.length > 0) {
      const auto [room, gap] = *std::prev(gaps_.end());
      gaps_.erase(std::prev(gaps_.end()));
      const int64_t taken = std::min(room, left.length);
      put({{left.document, left.offset, taken}, true}, gap);
      sum_of_gaps_ -= room;
      if (room - taken >= kSmallestGap) gaps_.emplace(room - taken, gap), sum_of_gaps_ += room - taken;
      const int64_t repeated = taken < left.length ? 1 : 0;
      left.offset += taken - repeated;
      left.length -= taken - repeated;
    }
  }
  return true;
}

int64_t sum_of_sizes(const DocumentSizes& sizes, const BestFitRequest& request) {
  int64_t sum = 0;
  for (int64_t document = request.documents.begin; document < request.documents.end; ++document) {
    if (sizes[document] < 0)
      throw UserError(concat(request.name, ": size of sequence ", document, ": expected 0 or more, found ",
                             sizes[document], ". The .idx is damaged; 'espalier data check' reads it whole."),
                      ExitCode::kBadData);
    sum += sizes[document];
  }
  if (sum == 0)
    throw UserError(concat(request.name, ": documents ", request.documents.begin, " to ", request.documents.end,
                           " hold 0 tokens, so no sample can be made. Give this set more documents."),
                    ExitCode::kBadData);
  return sum;
}

std::string cache_key(const DocumentSizes& sizes, const BestFitRequest& request) {
  const uint64_t hash =
      hash64(sizes.address(request.documents.begin), static_cast<size_t>(request.documents.size()) * 4);
  return concat("best-fit index, format 1\ndocuments: ", request.documents.begin, " to ", request.documents.end,
                "\nsizes of documents: xxh3 ", hex64(hash), "\nsequence length: ", request.sequence_length,
                "\nseed: ", request.seed, "\n");
}

IndexArray array_of(const std::vector<int64_t>& values, int64_t columns, IndexArray::Type type) {
  IndexArray array(type, static_cast<int64_t>(values.size()) / columns, columns);
  array.visit([&](auto to) {
    std::transform(values.begin(), values.end(), to.begin(),
                   [](int64_t value) { return static_cast<typename decltype(to)::value_type>(value); });
  });
  return array;
}

}  // namespace

BestFitIndex BestFitIndex::build(const DocumentSizes& sizes, const BestFitRequest& request,
                                 const std::filesystem::path& cache_folder) {
  const auto [begin, end] = request.documents;
  ESPALIER_CHECK(begin >= 0 && begin <= end && end <= sizes.count() && request.sequence_length > 0, begin, " ", end);
  BestFitIndex index;
  index.tokens_per_epoch_ = sum_of_sizes(sizes, request);
  index.sequence_length_ = request.sequence_length;
  if (cache_folder.empty()) {
    index.fill(sizes, request);
    return index;
  }
  const std::string key = cache_key(sizes, request);
  const std::filesystem::path stem = internal::cache_stem(cache_folder, request.name, key);
  const std::vector<internal::CachedArray> arrays = {{"_piece_idx.npy", &index.pieces_},
                                                     {"_row_idx.npy", &index.rows_}};
  if (internal::is_cached(stem)) {
    try {
      const bool is_large = end > std::numeric_limits<int32_t>::max();
      index.pieces_ = IndexArray(is_large ? IndexArray::Type::kInt64 : IndexArray::Type::kInt32, 0, 3);
      index.rows_ = IndexArray(IndexArray::Type::kInt64, 0);
      internal::load_cached(stem, key, arrays);
      return index;
    } catch (const UserError& error) {
      log_warning("the stored order of ", request.name, " cannot be used and is built again: ", error.what());
    }
  }
  index.fill(sizes, request);
  internal::store_cached(stem, key, arrays);
  return index;
}

void BestFitIndex::fill(const DocumentSizes& sizes, const BestFitRequest& request) {
  Progress progress(concat("pack documents of ", request.name), request.documents.size(), Progress::Unit::kItems,
                    "documents");
  NumpyRandom random(request.seed);  // serves first the documents, then each row, then the rows
  std::vector<int64_t> documents(static_cast<size_t>(request.documents.size()));
  std::iota(documents.begin(), documents.end(), request.documents.begin);
  random.shuffle(std::span(documents));
  std::vector<int64_t> pieces, rows = {0};  // as they are packed; each row begins at one of `pieces`
  for (size_t first = 0; first < documents.size(); first += kWindow) {
    const size_t end = std::min(documents.size(), first + static_cast<size_t>(kWindow));
    Window window(request.sequence_length + 1);
    for (size_t at = first; at < end; ++at) window.add(documents[at], sizes[documents[at]]);
    window.pack();
    for (Row& row : window.rows()) {
      if (row.pieces.empty()) continue;
      random.shuffle(std::span(row.pieces));
      for (const int32_t piece : row.pieces) {
        const DocumentSpan& span = window.pieces()[static_cast<size_t>(piece)].span;
        pieces.insert(pieces.end(), {span.document, span.offset, span.length});
      }
      rows.push_back(static_cast<int64_t>(pieces.size()) / 3);
    }
    progress.advance(static_cast<int64_t>(end - first));
  }
  std::vector<int64_t> order(rows.size() - 1), shuffled, starts = {0};
  std::iota(order.begin(), order.end(), 0);
  random.shuffle(std::span(order));
  shuffled.reserve(pieces.size());
  for (const int64_t row : order) {
    const auto at = static_cast<size_t>(row);
    shuffled.insert(shuffled.end(), pieces.begin() + 3 * rows[at], pieces.begin() + 3 * rows[at + 1]);
    starts.push_back(static_cast<int64_t>(shuffled.size()) / 3);
  }
  const bool is_large = request.documents.end > std::numeric_limits<int32_t>::max();
  pieces_ = array_of(shuffled, 3, is_large ? IndexArray::Type::kInt64 : IndexArray::Type::kInt32);
  rows_ = array_of(starts, 1, IndexArray::Type::kInt64);
  progress.finish(concat(format_count(size()), " samples, ", format_fixed(100 * padding(), 2), " % padding"));
}

void BestFitIndex::spans(int64_t sample, std::vector<DocumentSpan>& spans) const {
  ESPALIER_CHECK(sample >= 0 && sample < size(), "sample ", sample, " of ", size());
  spans.clear();
  for (int64_t piece = rows_[sample]; piece < rows_[sample + 1]; ++piece)
    spans.push_back({pieces_[3 * piece], pieces_[3 * piece + 1], pieces_[3 * piece + 2]});
}

std::vector<Sighting> BestFitIndex::sightings(const DocumentRange& documents) const {
  std::vector<Sighting> found;
  for (int64_t sample = 0; sample < size(); ++sample) {
    int64_t at = 0;
    for (int64_t piece = rows_[sample]; piece < rows_[sample + 1]; ++piece) {
      const DocumentSpan span{pieces_[3 * piece], pieces_[3 * piece + 1], pieces_[3 * piece + 2]};
      if (span.document >= documents.begin && span.document < documents.end) found.push_back({sample, at, span});
      at += span.length;
    }
  }
  return found;
}

double BestFitIndex::padding() const {
  int64_t filled = 0;
  for (int64_t piece = 0; piece < pieces_.rows(); ++piece) filled += pieces_[3 * piece + 2];
  const double places = static_cast<double>(size()) * static_cast<double>(sequence_length_ + 1);
  return 1 - static_cast<double>(filled) / places;
}

}  // namespace espalier::data
