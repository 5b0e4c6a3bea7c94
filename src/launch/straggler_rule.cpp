#include "launch/straggler_rule.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"

namespace espalier::launch {
namespace {

constexpr int64_t kFirstSteps = 2, kStepsToKnowNoise = 10, kStepsOfNoise = 32;
constexpr double kLeastNoise = 0.002;
constexpr double kShareOfAStep = 5;
constexpr int64_t kMostDoublings = 10, kStepsToHalve = 10'000;

// The median of sorted values without the one at `left_out`.
double median_without(const std::vector<double>& sorted, size_t left_out) {
  const size_t count = sorted.size() - 1;
  const auto at = [&](size_t index) { return sorted[index < left_out ? index : index + 1]; };
  return count % 2 == 1 ? at(count / 2) : (at(count / 2 - 1) + at(count / 2)) / 2;
}

}  // namespace

StragglerRule::StragglerRule(const std::vector<int64_t>& kin_of_rank)
    : ranks_(kin_of_rank.size()), threshold_(std::log(2e4 * static_cast<double>(kin_of_rank.size()))) {
  std::map<int64_t, std::vector<int64_t>> by_kin;
  for (size_t rank = 0; rank < kin_of_rank.size(); ++rank)
    by_kin[kin_of_rank[rank]].push_back(static_cast<int64_t>(rank));
  for (auto& [number, ranks] : by_kin)
    if (ranks.size() > 1) kins_.push_back({.ranks = ranks, .differences = {}, .next = 0, .noise = 0});
}

std::vector<StragglerRule::Verdict> StragglerRule::add_step(const std::vector<double>& own_seconds) {
  ESPALIER_CHECK(own_seconds.size() == ranks_.size(), own_seconds.size(), " of ", ranks_.size());
  std::vector<Verdict> verdicts;
  if (++num_steps_ <= kFirstSteps) return verdicts;
  for (Kin& kin : kins_) {
    compare(kin, own_seconds);
    if (num_steps_ <= kFirstSteps + kStepsToKnowNoise) continue;
    learn_noise(kin);
    weigh(kin, verdicts);
  }
  return verdicts;
}

void StragglerRule::compare(Kin& kin, const std::vector<double>& own_seconds) {
  constexpr double kLeastSeconds = 1e-9;  // a clock that does not advance
  const size_t size = kin.ranks.size(), kept = size * static_cast<size_t>(kStepsOfNoise);
  std::vector<std::pair<double, int64_t>> order;
  for (const int64_t rank : kin.ranks)
    order.emplace_back(std::log(std::max(kLeastSeconds, own_seconds[static_cast<size_t>(rank)])), rank);
  std::sort(order.begin(), order.end());
  std::vector<double> sorted;
  for (const auto& [value, rank] : order) sorted.push_back(value);
  for (size_t at = 0; at < size; ++at) {
    Rank& rank = ranks_[static_cast<size_t>(order[at].second)];
    const double x = sorted[at] - median_without(sorted, at), difference = std::abs(x - rank.x);
    rank.x = x;
    if (num_steps_ == kFirstSteps + 1) continue;  // there is none before
    if (kin.differences.size() < kept)
      kin.differences.push_back(difference);
    else
      kin.differences[kin.next++ % kept] = difference;
  }
}

void StragglerRule::learn_noise(Kin& kin) {
  std::vector<double> differences = kin.differences;
  const auto middle = differences.begin() + static_cast<std::ptrdiff_t>(differences.size() / 2);
  std::nth_element(differences.begin(), middle, differences.end());
  kin.noise = std::max(kLeastNoise, *middle / (0.6745 * std::sqrt(2.0)));
}

// Of the sum that says that the rank is slower, or no longer.
double StragglerRule::threshold_for(Rank& rank) const {
  if (rank.is_named) return threshold_;
  if (rank.num_doublings > 0 && num_steps_ - rank.last_change >= kStepsToHalve)
    --rank.num_doublings, rank.last_change = num_steps_;
  return std::ldexp(threshold_, static_cast<int>(rank.num_doublings));
}

void StragglerRule::weigh(const Kin& kin, std::vector<Verdict>& verdicts) {
  const double slower = std::log1p(kSlower), bound = threshold_ / kShareOfAStep;
  for (const int64_t number : kin.ranks) {
    Rank& rank = ranks_[static_cast<size_t>(number)];
    const double evidence = std::clamp(slower * (rank.x - slower / 2) / (kin.noise * kin.noise), -bound, bound);
    double& sum = rank.is_named ? rank.fast : rank.slow;
    sum = std::max(0.0, sum + (rank.is_named ? -evidence : evidence));
    rank.sum += rank.x, ++rank.count;
    if (sum > threshold_for(rank)) {
      if (rank.is_named) rank.num_doublings = std::min(kMostDoublings, rank.num_doublings + 1);
      rank.last_change = num_steps_;
      rank.is_named = !rank.is_named;
      verdicts.push_back({.rank = number,
                          .begins = rank.is_named,
                          .excess = std::expm1(rank.sum / static_cast<double>(rank.count)),
                          .num_steps = rank.count});
      sum = 0;
    }
    if (sum <= 0) rank.sum = 0, rank.count = 0;
  }
}

}  // namespace espalier::launch
