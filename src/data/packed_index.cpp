#include "data/packed_index.h"

#include <numeric>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "data/numpy_random.h"

namespace espalier::data {
namespace {

int64_t tokens_of(const DocumentSizes& inputs, const DocumentSizes& targets, int64_t pair) {
  return int64_t{inputs[pair]} + targets[pair];
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

// Upstream asserts the first when it comes to read such a pair; of the second it would look for rows for ever.
std::string PackedIndex::problem_of(const DocumentSizes& inputs, const DocumentSizes& targets,
                                    const PackedRequest& request) {
  int64_t num_fitting = 0;
  for (int64_t pair = request.pairs.begin; pair < request.pairs.end; ++pair) {
    if (inputs[pair] <= 0 || targets[pair] <= 0)
      return concat(request.name, ": pair ", pair, ": expected at least one token of input and of target, found ",
                    inputs[pair], " and ", targets[pair], ". Leave such records out.");
    num_fitting += tokens_of(inputs, targets, pair) <= request.row_length;
  }
  if (num_fitting > 0) return "";
  return concat(request.name, ": none of the ", format_count(request.pairs.size()), " pairs ", request.pairs.begin,
                " to ", request.pairs.end, " fits into ", request.row_length, " tokens. Give a longer --seq-length.");
}

PackedIndex PackedIndex::build(const DocumentSizes& inputs, const DocumentSizes& targets,
                               const PackedRequest& request) {
  ESPALIER_CHECK(inputs.count() == targets.count() && request.pairs.begin >= 0 && request.pairs.end <= inputs.count() &&
                 request.row_length > 0 && request.num_rows >= 0);
  if (const std::string problem = problem_of(inputs, targets, request); !problem.empty())
    throw UserError(problem, ExitCode::kBadData);
  std::vector<int64_t> sizes;
  PackedIndex index;
  for (int64_t pair = request.pairs.begin; pair < request.pairs.end; ++pair) {
    sizes.push_back(tokens_of(inputs, targets, pair));
    index.num_too_long_ += sizes.back() > request.row_length;
  }
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
