#include "infer/engine/beam_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace espalier::infer {
namespace {

struct BeamCandidate {
  size_t beam;
  TokenScore token;
  double sum;
};

// Of all beams, the best first; equals in the order of beams and ids.
std::vector<BeamCandidate> best_candidates(std::span<const std::vector<Alternative>> likeliest,
                                           const std::vector<BeamText>& beams, int64_t count) {
  std::vector<BeamCandidate> candidates;
  for (size_t beam = 0; beam < beams.size(); ++beam)
    for (const auto& [id, log_probability] : likeliest[beam]) {
      const bool is_greedy = log_probability == likeliest[beam][0].log_probability;
      candidates.push_back({beam, {id, log_probability, is_greedy, {}}, beams[beam].sum + log_probability});
    }
  std::sort(candidates.begin(), candidates.end(), [](const BeamCandidate& a, const BeamCandidate& b) {
    if (a.sum != b.sum) return a.sum > b.sum;
    return std::pair(a.beam, a.token.id) < std::pair(b.beam, b.token.id);
  });
  candidates.resize(std::min(candidates.size(), static_cast<size_t>(count)));
  return candidates;
}

BeamText extended(const BeamText& beam, const BeamCandidate& candidate) {
  BeamText text{.tokens = beam.tokens, .sum = candidate.sum};
  text.tokens.push_back(candidate.token);
  return text;
}

}  // namespace

BeamSearch::BeamSearch(const Config& config) : config_(config), beams_(1) {}

std::vector<BeamSearch::Next> BeamSearch::advance(std::span<const std::vector<Alternative>> likeliest) {
  const std::vector<BeamCandidate> candidates = best_candidates(likeliest, beams_, num_wanted());
  const auto width = static_cast<size_t>(config_.width);
  ++length_;
  std::vector<Next> next;
  std::vector<BeamText> beams;
  for (size_t rank = 0; rank < candidates.size() && next.size() < width; ++rank) {
    const BeamCandidate& candidate = candidates[rank];
    const auto& stops = config_.stop_ids;
    if (std::find(stops.begin(), stops.end(), candidate.token.id) == stops.end()) {
      beams.push_back(extended(beams_[candidate.beam], candidate));
      next.push_back({candidate.beam, candidate.token.id});
    } else if (rank < width) {
      BeamText text = extended(beams_[candidate.beam], candidate);
      text.is_stopped = true;
      finish(std::move(text));
    }
  }
  if (cannot_improve(candidates[0].sum)) return {};
  beams_ = std::move(beams);
  if (length_ < config_.max_tokens) return next;
  for (BeamText& beam : beams_) finish(std::move(beam));
  return {};
}

double BeamSearch::score(double sum, int64_t length) const {
  return sum / std::pow(static_cast<double>(length), config_.length_penalty);
}

// Keeps the best `width`; of equal scores those that came first.
void BeamSearch::finish(BeamText text) {
  text.score = score(text.sum, static_cast<int64_t>(text.tokens.size()));
  const auto place = std::upper_bound(finished_.begin(), finished_.end(), text.score,
                                      [](double value, const BeamText& other) { return value > other.score; });
  finished_.insert(place, std::move(text));
  if (finished_.size() > static_cast<size_t>(config_.width)) finished_.pop_back();
}

bool BeamSearch::cannot_improve(double best_sum) const {
  return finished_.size() == static_cast<size_t>(config_.width) && finished_.back().score >= score(best_sum, length_);
}

std::vector<BeamText> BeamSearch::texts() const { return finished_; }

}  // namespace espalier::infer
