// The shares in which training is to read the outputs of a curation: the [mix] table of a recipe.
//
//   [mix]
//   alpha = 0.3                  # temperature: an output weighs its tokens to this power
//   epochs = ["books=2"]         # count the tokens of an output this many times
//   valid_per_corpus = true
//
// The weights and the files are those of `espalier data blend` (data/blend_recipe.h).
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/options.h"
#include "curate/report.h"
#include "data/blend_recipe.h"

namespace espalier::curate {

struct BlendPlan {
  std::optional<double> alpha;
  std::vector<std::string> epochs;
  std::string ratios;  // a file like BLOOM's
  std::string train_range = "0:0.95", valid_range = "0.95:1";
  bool valid_per_corpus = false;
  std::optional<int64_t> train_tokens;
  // Of the words above, by check().
  std::map<std::string, double> epochs_of;
  std::vector<data::BlendSource> ratios_of;
  data::FractionRange train, valid;
};

void add_rows(OptionTable& table, BlendPlan& plan);
void check(BlendPlan& plan, Problems& problems);

// train-splits.txt and valid-splits.txt into the folder of the token files, and what they say for the report: of each
// output its share, the tokens that a run reads, and how often it is read. Empty where no output has tokens.
nlohmann::ordered_json write_blend(const BlendPlan& plan, const std::filesystem::path& folder,
                                   const std::vector<GroupTally>& groups);

}  // namespace espalier::curate
