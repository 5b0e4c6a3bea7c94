// Which source of a training set each place of the run reads, and which of the source's samples: a blend, or several
// blends one after another (stages).
//
// Inside a stage the sources take turns as in Megatron's blend (data/blend.h), counted from the stage's beginning, so
// that each has its share of the stage to within one sample. Each source counts its own samples through the whole run:
// one that is kept goes on with its next sample, and so does one that comes back after a pause. What a later stage says
// therefore changes nothing before it.
//
//   const Mixture mixture = Mixture::of_stages({{0, {0, 1}, {0.7, 0.3}}, {5000, {1, 2}, {0.5, 0.5}}}, 3, 9000);
//   mixture.place(6000)   // source 2, its sample 500
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/blend.h"

namespace espalier::data {

class Mixture {
 public:
  struct Stage {
    int64_t first_sample = 0;     // of the run
    std::vector<size_t> sources;  // none twice
    std::vector<double> weights;  // of each, the sum being 1
    bool operator==(const Stage&) const = default;
  };

  Mixture() = default;
  // One blend that goes on as long as its sources, which have these numbers of samples, can keep it up.
  static Mixture of_blend(std::vector<double> weights, const std::vector<int64_t>& lengths);
  // The first stage begins at sample 0, each other one after the one before it; those that begin at `num_samples` or
  // later are left out. There are sources 0 to num_sources - 1.
  static Mixture of_stages(const std::vector<Stage>& stages, size_t num_sources, int64_t num_samples);

  int64_t size() const { return size_; }
  // Place::set is the source, Place::sample counts its samples from the beginning of the run.
  BlendIndex::Place place(int64_t sample) const;
  // Where that sample of a source is in the run; nothing where the run ends before it.
  std::optional<int64_t> sample_at(const BlendIndex::Place& place) const;

  size_t num_stages() const { return parts_.size(); }
  const Stage& stage(size_t stage) const { return parts_[stage].stage; }
  int64_t stage_size(size_t stage) const { return parts_[stage].size; }
  // Samples of a source that are read before a stage; of num_stages(), in the whole run.
  int64_t samples_before(size_t stage, size_t source) const;

 private:
  struct Part {
    Stage stage;
    int64_t size = 0;
    std::optional<BlendIndex> blend;  // of several sources
    std::vector<int64_t> before;      // by source

    int64_t count(size_t source) const;
  };

  int64_t size_ = 0;
  std::vector<Part> parts_;
};

}  // namespace espalier::data
