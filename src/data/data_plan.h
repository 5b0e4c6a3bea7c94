// Which token files the training, validation and test sets read, and in which shares.
//
// Three ways, Megatron's all: --data-path (one prefix, or weight prefix weight prefix ...) or --data-file-list (lines
// WEIGHT PREFIX CORPUS), cut by --split; --train-weighted-split-paths "NAME: WEIGHT a:b PREFIX, WEIGHT a:b PREFIX" and
// its valid and test forms, which may hold several named groups; or --train-data-path, --valid-data-path and
// --test-data-path, in the form of --data-path, each read whole. --data-stages goes with each of them: what the
// training set is mixed from later in the run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/data_stages.h"
#include "data/splits.h"

namespace espalier::data {

// How samples are made of documents.
enum class Packing {
  kNone,    // Megatron's: a row of tokens that is cut every sequence length (data/sample_index.h)
  kBestFit  // documents stay whole where they fit (data/best_fit_index.h)
};

// In which order the samples of running text are read.
enum class OrderKind {
  kMegatron,  // shuffled index arrays, built at the start (data/sample_index.h)
  kImplicit   // a keyed permutation: nothing is built (data/implicit_order.h)
};

// As the command line gives them.
struct DataSetOptions {
  std::vector<std::string> data_path;
  std::string data_file_list;
  std::string split;  // empty: "969, 30, 1"
  std::vector<std::string> train_data_path, valid_data_path, test_data_path;
  std::vector<std::string> train_weighted_split_paths, valid_weighted_split_paths, test_weighted_split_paths;
  // The same from a file: one line of quoted groups.
  std::string train_weighted_split_paths_path, valid_weighted_split_paths_path, test_weighted_split_paths_path;
  std::vector<std::string> data_stages;  // data/data_stages.h; steps are a problem
  Packing packing = Packing::kNone;
  OrderKind sample_order = OrderKind::kMegatron;
  int64_t pad_id = 0;               // what fills samples up, where they are not full
  std::string data_impl = "infer";  // or mmap, lazy, cached: what the token files have to be
  int64_t sequence_length = 0;      // above 0
  int64_t seed = 1234;              // 0 to 2^32 - 1, numpy's range; the option rows check both
  int64_t train_samples = 0, valid_samples = 0, test_samples = 0;  // asked for; each group gets the full number
  std::string cache_path;                                          // --data-cache-path; empty: keep nothing
  // What the names of the token files of a data set add to its prefix (Objective::token_file_endings()).
  std::vector<std::string> endings = {""};
};

struct DataGroup {
  std::string name;                 // "train", "valid", "test" or the group's own
  std::vector<DataSource> sources;  // a weight counts only among several
};

struct DataPlan {
  DataGroup train;  // as the run begins
  // What the training set is mixed from afterwards; the first samples rise, and are above 0.
  struct Stage {
    int64_t first_sample = 0;
    std::vector<DataSource> sources;
  };
  std::vector<Stage> train_stages;
  std::vector<DataGroup> valid, test;
  Split split;
  std::vector<std::string> endings = {""};

  // Of all token files, each as often as it is named.
  std::vector<std::string> token_files() const;
};

// Adds every problem found, among them files that do not exist (with the nearest that do). Of the token files it
// reads the first eight bytes at most.
DataPlan plan_data(const DataSetOptions& options, Problems& problems);

// "NAME: WEIGHT a:b PREFIX, ...". Throws a UserError that quotes the text.
DataGroup parse_data_group(const std::string& text);

// The groups of a weighted-split-paths file: texts in double quotes, blanks between them.
std::vector<std::string> parse_quoted_groups(const std::string& content, const std::string& file_name);

}  // namespace espalier::data
