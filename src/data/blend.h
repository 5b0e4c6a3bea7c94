// Mixes several data sets by weights, exactly as Megatron's BlendableDataset: at every sample the set furthest behind
// its share comes next. The mix itself is not shuffled; each set has its own order.
//
// Bit for bit means in doubles, with upstream's order of operations and without fused multiply-adds (the build has
// -ffp-contract=off): otherwise ties fall to other sets.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace espalier::data {

// The sum as numpy's np.sum adds doubles: pairwise from 8 numbers on.
double numpy_sum(std::span<const double> values);

// Each weight divided by the sum from left to right, as Megatron does with the weights of a data path.
std::vector<double> normalized_weights(std::span<const double> weights);

// How many samples each set of a blend is asked for: 0.5 % above its share, rounded up. `weights` are normalised.
std::vector<int64_t> samples_per_set(std::span<const double> weights, int64_t num_samples);

class BlendIndex {
 public:
  struct Place {
    int64_t set = 0;
    int64_t sample = 0;  // within the set
    bool operator==(const Place&) const = default;
  };

  // `lengths` are the samples that each set has. The blend continues as long as upstream's, the sum of the lengths, but
  // ends before the first sample that is beyond its set: upstream would promise those and fail when it comes to
  // them, weeks into a run. 1 to 65,535 sets; weights above 0. Shows progress.
  static BlendIndex build(std::span<const double> weights, std::span<const int64_t> lengths);

  int64_t size() const { return static_cast<int64_t>(sets_.size()); }
  Place place(int64_t sample) const;
  // Where that sample of a set is in the blend; nothing where the blend ends before it.
  std::optional<int64_t> sample_at(const Place& place) const;

 private:
  // What place() would need 8 bytes for, it counts: the samples of each set before every block are kept.
  static constexpr int64_t kBlock = 1024;

  int64_t num_sets_ = 0;
  std::vector<uint16_t> sets_;            // of each sample
  std::vector<int64_t> counts_at_block_;  // [blocks, sets]
};

}  // namespace espalier::data
