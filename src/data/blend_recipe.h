// The shares in which several data sets are read, and the split files that tell training: the work of
// `espalier data blend`.
//
// A recipe comes from the sizes of the sets, from a ratios file as BLOOM's ([{"dataset_path", "ratio"}, ...]), or from
// a file list as Argonne's Megatron-DeepSpeed reads (lines WEIGHT PREFIX CORPUS). It leaves as the one line of quoted
// groups that --train-weighted-split-paths-path reads.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/splits.h"

namespace espalier::data {

struct BlendSource {
  std::string prefix;
  std::string corpus;     // the sets of a corpus share its weight and its validation group
  double weight = 0;      // relative to the others
  double epochs = 1;      // how often it is wanted, of recipes by size
  bool measured = false;  // the files exist: the counts below are theirs
  int64_t num_documents = 0, num_tokens = 0;
  int64_t num_train_tokens = 0;  // of the documents of the training range
};

// "FILE: entry 3: ...": what is wrong with a file is a UserError (exit code 65). A "{PATH: RATIO}" or
// "{PATH: [RATIO, SIZE]}" object is accepted as well; ".bin" at the end of a path is dropped, as upstream does.
std::vector<BlendSource> parse_ratios(const std::string& content, const std::string& file_name);
std::vector<BlendSource> parse_file_list(const std::string& content, const std::string& file_name);
std::vector<BlendSource> sources_of(const std::vector<std::string>& prefixes);

// Looks below `folder` for the last two parts of each prefix, then for the last, and takes what exists.
void relocate(std::vector<BlendSource>& sources, const std::string& folder);

// Opens the sets that exist and counts.
void measure(std::vector<BlendSource>& sources, const FractionRange& train_range);

// Gives the corpora named in `epochs` their number; a name that no corpus has is a problem with the nearest ones.
void set_epochs(std::vector<BlendSource>& sources, const std::map<std::string, double>& epochs, Problems& problems);

// Weights that sum to 1: of a corpus (its tokens x epochs) ^ alpha, within it by tokens x epochs. 1 reads everything as
// often as it is, 0 every corpus equally. All must be measured.
void weigh_by_size(std::vector<BlendSource>& sources, double alpha);

// Drops those of weight 0, which training would read where shares tie, and returns their prefixes.
std::vector<std::string> drop_unweighted(std::vector<BlendSource>& sources);

struct SplitFile {
  std::string set;  // "train", "valid", "test": the name of the group
  FractionRange range;
  bool group_per_corpus = false;  // "SET_CORPUS" after the group of all
  std::string base_folder;        // paths are relative to it
};

// The content of the file: one line of groups in quotes. A path that the format cannot hold (a blank, a comma or a
// quote in it) is a UserError.
std::string split_file_content(const std::vector<BlendSource>& sources, const SplitFile& file);

}  // namespace espalier::data
