#include "launch/internal/rank_list.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"

namespace espalier::launch::internal {

std::string ranks_in_words(const std::vector<int64_t>& ranks) {
  constexpr size_t kShown = 8;
  std::vector<std::string> texts;
  for (size_t at = 0; at < std::min(kShown, ranks.size()); ++at) texts.push_back(std::to_string(ranks[at]));
  if (ranks.size() > kShown) texts.push_back(concat("and ", ranks.size() - kShown, " more"));
  return concat(ranks.size() == 1 ? "rank " : "ranks ", join(texts, ", "));
}

}  // namespace espalier::launch::internal
