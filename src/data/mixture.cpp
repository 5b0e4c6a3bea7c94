#include "data/mixture.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace espalier::data {

Mixture Mixture::of_blend(std::vector<double> weights, const std::vector<int64_t>& lengths) {
  ESPALIER_CHECK(!weights.empty() && weights.size() == lengths.size());
  Mixture mixture;
  Part part;
  part.stage.sources.resize(weights.size());
  std::iota(part.stage.sources.begin(), part.stage.sources.end(), size_t{0});
  if (weights.size() > 1) part.blend = BlendIndex::build(weights, lengths);
  part.size = part.blend ? part.blend->size() : lengths.front();
  part.stage.weights = std::move(weights);
  part.before.resize(lengths.size(), 0);
  mixture.size_ = part.size;
  mixture.parts_.push_back(std::move(part));
  return mixture;
}

Mixture Mixture::of_stages(const std::vector<Stage>& stages, size_t num_sources, int64_t num_samples) {
  ESPALIER_CHECK(!stages.empty() && stages.front().first_sample == 0 && num_samples >= 0);
  Mixture mixture;
  mixture.size_ = num_samples;
  std::vector<int64_t> before(num_sources, 0);
  for (size_t at = 0; at < stages.size(); ++at) {
    if (at > 0 && stages[at].first_sample >= num_samples) break;
    const int64_t next = at + 1 < stages.size() ? stages[at + 1].first_sample : num_samples;
    Part part{stages[at], std::min(next, num_samples) - stages[at].first_sample, std::nullopt, before};
    ESPALIER_CHECK(part.size >= 0 && part.stage.sources.size() == part.stage.weights.size());
    if (part.stage.sources.size() > 1) part.blend = BlendIndex::of_size(part.stage.weights, part.size);
    for (const size_t source : part.stage.sources) before[source] += part.count(source);
    mixture.parts_.push_back(std::move(part));
  }
  return mixture;
}

// Samples of a source in the stage.
int64_t Mixture::Part::count(size_t source) const {
  const auto found = std::find(stage.sources.begin(), stage.sources.end(), source);
  if (found == stage.sources.end()) return 0;
  return blend ? blend->count(found - stage.sources.begin()) : size;
}

BlendIndex::Place Mixture::place(int64_t sample) const {
  ESPALIER_CHECK(sample >= 0 && sample < size_, "sample ", sample, " of ", size_);
  size_t at = parts_.size() - 1;
  while (parts_[at].stage.first_sample > sample) --at;
  const Part& part = parts_[at];
  const int64_t in_stage = sample - part.stage.first_sample;
  const BlendIndex::Place place = part.blend ? part.blend->place(in_stage) : BlendIndex::Place{0, in_stage};
  const size_t source = part.stage.sources[static_cast<size_t>(place.set)];
  return {static_cast<int64_t>(source), part.before[source] + place.sample};
}

std::optional<int64_t> Mixture::sample_at(const BlendIndex::Place& place) const {
  const auto source = static_cast<size_t>(place.set);
  for (const Part& part : parts_) {
    const int64_t in_stage = place.sample - part.before[source];
    if (in_stage < 0 || in_stage >= part.count(source)) continue;
    if (!part.blend) return part.stage.first_sample + in_stage;
    const int64_t set =
        std::find(part.stage.sources.begin(), part.stage.sources.end(), source) - part.stage.sources.begin();
    return part.stage.first_sample + part.blend->sample_at({set, in_stage}).value();
  }
  return std::nullopt;
}

int64_t Mixture::samples_before(size_t stage, size_t source) const {
  if (stage < parts_.size()) return parts_[stage].before[source];
  return parts_.back().before[source] + parts_.back().count(source);
}

}  // namespace espalier::data
