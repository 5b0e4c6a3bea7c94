// Keeps the least toxic share of scored texts: filter-selfgeneration.py of Megatron-DeepSpeed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace espalier::eval {

// Mean and standard deviation (of all, divided by n) of so many values.
struct Spread {
  int64_t count = 0;
  double mean = 0, deviation = 0;  // 0 of none
};
Spread spread_of(const std::vector<double>& values);

struct FilterPlan {
  std::filesystem::path input, output;
  std::string attribute = "toxicity";
  double share = 0.5;   // of all lines, those without a score included
  int64_t seed = 1234;  // below 2^32
  bool overwrite = false;
};

struct FilterSummary {
  int64_t num_lines = 0;
  double threshold = 0.5;  // toxic is what is above it
  Spread all, toxic, nontoxic, kept;
  double lowest_kept = 0, highest_kept = 0;
};

// Writes the lines of the floor(share * lines) lowest scores, of equal ones those that come first, as they are, in the
// order of sklearn.utils.shuffle(kept, random_state=seed), kept by ascending score. Lines whose score is null are never
// kept.
FilterSummary keep_least_toxic(const FilterPlan& plan);

}  // namespace espalier::eval
