// Every number of a metrics.jsonl that grows, held in memory, for pages that draw it again and again.
//
//   MetricsIndex index(folder / "metrics.jsonl");
//   index.update();                                 // reads what was appended since the last call
//   const Bins bins = bin(index, "lm_loss", 1, 1'000'000, 1200);
//
// A number nested one deep gets a name with a slash: "lm_loss_by_data_set/wiki". The rules of metrics_reader.h hold: a
// record counts no more once a later one has its step or an older one.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "report/metrics_reader.h"

namespace espalier::report {

class MetricsIndex {
 public:
  struct Column {
    std::string name;
    std::vector<float> values;  // as long as steps(); NaN where a record has no number
  };

  explicit MetricsIndex(std::filesystem::path file) : file_(std::move(file)) {}

  // A file that is not there yet has no records; one that was replaced or cut off is read anew.
  void update();

  // Changes whenever records were taken back, so that who has drawn them must ask for all.
  int64_t generation() const { return generation_; }
  const std::vector<int64_t>& steps() const { return steps_; }  // rising
  const std::vector<Column>& columns() const { return columns_; }
  const Column* find(const std::string& name) const;
  const std::vector<Evaluation>& evaluations() const { return evaluations_; }

 private:
  void begin_anew();
  void line(std::string_view text);
  bool read_members(std::string_view text, int64_t& step);
  void set(std::string_view prefix, std::string_view key, double value);
  void read_nested(std::string_view key, std::string_view value);
  void take_back(int64_t step);

  std::filesystem::path file_;
  int64_t generation_ = 0;
  ino_t inode_ = 0;
  int64_t position_ = 0;  // in the file: everything before was read
  std::string partial_;   // of the last line, which has no end yet
  std::vector<int64_t> steps_;
  std::vector<Column> columns_;
  std::vector<Evaluation> evaluations_;

  // Of the line that is being read.
  size_t expected_column_ = 0;  // lines mostly have the same keys in the same order
  std::vector<std::pair<size_t, float>> found_;
  std::vector<Evaluation> found_evaluations_;
};

// The extremes of a column over equal ranges of steps. Nothing is averaged or left out: a single high step stays
// visible at any zoom.
struct Bins {
  int64_t first_step = 0, width = 1;   // of a bin, in steps
  std::vector<float> lowest, highest;  // NaN: no number there
};

// At most `most_bins` bins from step `from` to step `to`, both included. All NaN where there is no such column.
Bins bin(const MetricsIndex& index, const std::string& column, int64_t from, int64_t to, int64_t most_bins);

}  // namespace espalier::report
