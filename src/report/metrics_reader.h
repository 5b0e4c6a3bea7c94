// Reads metrics.jsonl of a run folder.
//
// A record that a later one of the same step follows (a run that was killed and continued from an older step) counts no
// more. Lines that are not whole objects (the last one of a killed run, or one that is just being written) are counted
// and left out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace espalier::report {

struct Evaluation {
  int64_t step = 0;
  std::string kind, set, name;  // "validation", "wiki", "lm_loss"
  double value = 0;             // NaN: null in the file
};

struct Metrics {
  std::vector<int64_t> steps;                          // rising
  std::map<std::string, std::vector<double>> columns;  // as long as `steps`; NaN where a record has no number
  std::vector<Evaluation> evaluations;
  int64_t num_bad_lines = 0;

  // The first column whose name ends in "loss"; "" if there is none. "lm_loss" comes before others.
  std::string loss_column() const;
};

// The columns called `names` and all that end in "loss". A file that does not exist has no records.
Metrics read_metrics(const std::filesystem::path& file, const std::vector<std::string>& names);

// The same of the last records only, at least `most` of them where there are as many: what a list of runs needs.
Metrics read_last_metrics(const std::filesystem::path& file, const std::vector<std::string>& names, int64_t most);

}  // namespace espalier::report
