#include "data/packed_index.h"

#include <numeric>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "data/numpy_random.h"

namespace espalier::data {
namespace {

// Tokens of each pair of the range, with the checks that upstream makes when it comes to read one.
std::vector<int64_t> pair_sizes(const DocumentSizes& inputs, const DocumentSizes& targets,
                                const PackedRequest& request) {
  std::vector<int64_t> sizes;
  for (int64_t pair = request.pairs.begin; pair < request.pairs.end; ++pair) {
    if (inputs[pair] <= 0 || targets[pair] <= 0)
      throw UserError(concat(request.name, ": pair ", pair, ": expected at least one token of input and of target, ",
                             "found ", inputs[pair], " and ", targets[pair], ". Leave such records out."),
                      ExitCode::kBadData);
    sizes.push_back(inputs[pair] + targets[pair]);
  }
  return sizes;
}

// The row that is being filled, carried from epoch to epoch.
struct OpenRow {
  int64_t begin = 0, length = 0;

  // Takes the pair at `position`; a finished row goes to `rows`.
  void add(int64_t position, int64_t size, int64_t row_length, std::vector<PackedIndex::Row>& rows) {
    length += size;
    if (length <= row_length) return;
    if (position > begin) rows.push_back({begin, position});
    const bool too_long = size > row_length;
    begin = too_long ? position + 1 : position;
    length = too_long ? 0 : size;
  }
};

}  // namespace

PackedIndex PackedIndex::build(const DocumentSizes& inputs, const DocumentSizes& targets,
                               const PackedRequest& request) {
  ESPALIER_CHECK(inputs.count() == targets.count() && request.pairs.begin >= 0 && request.pairs.end <= inputs.count() &&
                 request.row_length > 0 && request.num_rows >= 0);
  const std::vector<int64_t> sizes = pair_sizes(inputs, targets, request);
  PackedIndex index;
  for (const int64_t size : sizes) index.num_too_long_ += size > request.row_length;
  if (index.num_too_long_ == request.pairs.size())
    throw UserError(
        concat(request.name, ": none of the ", format_count(request.pairs.size()), " pairs ", request.pairs.begin,
               " to ", request.pairs.end, " fits into ", request.row_length, " tokens. Give a longer --seq-length."),
        ExitCode::kBadData);
  if (index.num_too_long_ > 0)
    log_warning(request.name, ": ", format_count(index.num_too_long_), " of ", format_count(request.pairs.size()),
                " pairs are longer than ", request.row_length, " tokens and are left out");
  NumpyRandom random(request.seed);
  OpenRow open;
  while (index.size() <= request.num_rows) {
    const auto before = static_cast<int64_t>(index.order_.size());
    index.order_.resize(static_cast<size_t>(before + request.pairs.size()));
    const std::span<int64_t> epoch = std::span(index.order_).subspan(static_cast<size_t>(before));
    std::iota(epoch.begin(), epoch.end(), request.pairs.begin);
    random.shuffle(epoch);
    for (size_t at = 0; at < epoch.size(); ++at)
      open.add(before + static_cast<int64_t>(at), sizes[static_cast<size_t>(epoch[at] - request.pairs.begin)],
               request.row_length, index.rows_);
    ++index.num_epochs_;
  }
  return index;
}

std::span<const int64_t> PackedIndex::pairs(int64_t row) const {
  ESPALIER_CHECK(row >= 0 && row < size(), "row ", row, " of ", size());
  const auto [begin, end] = rows_[static_cast<size_t>(row)];
  return std::span(order_).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
}

}  // namespace espalier::data
