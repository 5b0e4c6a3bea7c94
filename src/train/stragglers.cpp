#include "train/stragglers.h"

#include <cstdlib>

#include "base/error.h"
#include "base/format.h"
#include "base/host_name.h"
#include "base/log.h"
#include "base/whereabouts.h"

namespace espalier::train {
namespace {

constexpr size_t kStepsTogether = 5;

// Ranks whose work is alike.
std::vector<int64_t> kin_of_ranks(const spec::GridShape& shape) {
  std::vector<int64_t> kin;
  for (int64_t rank = 0; rank < shape.num_ranks(); ++rank) {
    const spec::GridPosition position = spec::position_of(shape, rank);
    kin.push_back(position.pipeline * shape.context + position.context);
  }
  return kin;
}

}  // namespace

Stragglers::Stragglers(const dist::Grid& grid, report::RunLog& log)
    : grid_(grid),
      log_(log),
      watches_(grid.world.size() > 1 && grid.device.is_cpu()),
      hosts_(watches_ ? grid.world.gather_texts(host_name()) : std::vector<std::string>{}),
      rule_(kin_of_ranks(grid.shape)) {}

void Stragglers::before_step(int64_t) {
  start_ = std::chrono::steady_clock::now();
  waited_before_ = seconds_waited_for_peers();
}

void Stragglers::after_step(const report::StepReport& report) {
  if (!watches_) return;
  const double all = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  own_seconds_.push_back(all - (seconds_waited_for_peers() - waited_before_));
  if (own_seconds_.size() < kStepsTogether) return;
  std::vector<std::string> words;
  for (const double seconds : own_seconds_) words.push_back(format_printf("%.6e", seconds));
  own_seconds_.clear();
  const std::vector<std::string> texts = grid_.world.gather_texts(join(words, " "));
  if (grid_.rank == 0) judge(texts, report.step);
}

void Stragglers::judge(const std::vector<std::string>& texts, int64_t step) {
  std::vector<std::vector<double>> steps(kStepsTogether, std::vector<double>(texts.size()));
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    const std::vector<std::string> words = split_blanks(texts[rank]);
    for (size_t at = 0; at < kStepsTogether; ++at) steps[at][rank] = std::strtod(words.at(at).c_str(), nullptr);
  }
  for (const std::vector<double>& own : steps)
    for (const launch::StragglerRule::Verdict& verdict : rule_.add_step(own)) {
      const std::string what = in_words(verdict);
      if (verdict.begins)
        log_warning(what);
      else
        log_info(what);
      log_.event("straggler", step, what);
    }
}

std::string Stragglers::in_words(const launch::StragglerRule::Verdict& verdict) const {
  const std::string who = concat("rank ", verdict.rank, " on ", hosts_.at(static_cast<size_t>(verdict.rank)));
  if (!verdict.begins) return concat(who, " keeps up with the rest again");
  return concat(who, " is slower than the rest: its own work takes ", format_printf("%.0f", 100 * verdict.excess),
                " % longer than that of ranks with the same work, over the last ", verdict.num_steps, " steps");
}

}  // namespace espalier::train
