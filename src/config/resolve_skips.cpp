// --skip-train-iteration-range and the two other ways to say it.
#include <algorithm>

#include "base/format.h"
#include "base/literal.h"
#include "config/internal/resolver.h"

namespace espalier::config::internal {
namespace {

// "5-7"
std::optional<StepRange> parse_range(const std::string& text) {
  const size_t dash = text.find('-');
  if (dash == std::string::npos) return std::nullopt;
  const std::optional<int64_t> first = parse_python_int(text.substr(0, dash));
  const std::optional<int64_t> last = parse_python_int(text.substr(dash + 1));
  if (!first || !last || *first < 1 || *last < *first) return std::nullopt;
  return StepRange{*first, *last};
}

}  // namespace

void Resolver::resolve_skips() {
  TrainingConfig& training = config_.training;
  std::vector<StepRange> ranges;
  for (const std::string& text : training.skip_train_iteration_range) {
    const std::optional<StepRange> range = parse_range(text);
    if (range) {
      ranges.push_back(*range);
    } else {
      problems_.add(origin("--skip-train-iteration-range"), ": '", text,
                    "' is not a range of steps FIRST-LAST, such as 31216-31250; the first step is 1");
    }
  }
  const std::vector<int64_t>& pairs = training.train_range_to_skip;
  if (pairs.size() % 2 != 0)
    problems_.add(origin("--train-range-to-skip"), " has ", pairs.size(), " numbers; give pairs FIRST LAST");
  for (size_t at = 0; at + 1 < pairs.size(); at += 2) {
    if (pairs[at] < 1 || pairs[at + 1] < pairs[at])
      problems_.add(origin("--train-range-to-skip"), ": ", pairs[at], " ", pairs[at + 1],
                    " is not a range of steps; the first step is 1");
    else
      ranges.push_back({pairs[at], pairs[at + 1]});
  }
  for (const int64_t step : training.train_iters_to_skip) {
    if (step < 0)
      problems_.add(origin("--train-iters-to-skip"), ": ", step, " is not a step; the first is 0 here");
    else
      ranges.push_back({step + 1, step + 1});
  }
  // Those that overlap or follow one another become one, as upstream merges them.
  std::sort(ranges.begin(), ranges.end(), [](const StepRange& a, const StepRange& b) { return a.first < b.first; });
  training.skipped_steps.clear();
  for (const StepRange& range : ranges) {
    std::vector<StepRange>& merged = training.skipped_steps;
    if (!merged.empty() && range.first <= merged.back().last + 1)
      merged.back().last = std::max(merged.back().last, range.last);
    else
      merged.push_back(range);
  }
}

}  // namespace espalier::config::internal
