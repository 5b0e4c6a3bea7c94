// Puts data sets one after another into one: Megatron's merge_preprocessed_data.py and merge_datasets.py.
//
// The result equals, byte for byte, what one preprocess run over all their text gives. Inputs may be in the mmap format
// or in the older one; the result is mmap. Tokens are copied by the system and the indices walked, so memory does not
// grow with the data. Until the end everything is under names that end in .tmp; a data set of the output's name stays
// as it is until then.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"

namespace espalier::data {

// The prefixes of all data sets in a folder, in the order of their names (by bytes, as Python sorts them). Half a data
// set is a problem; other files are not looked at.
std::vector<std::string> prefixes_in(const std::string& folder, Problems& problems);

struct MergeSummary {
  int64_t num_documents = 0, num_sequences = 0, num_tokens = 0, num_bytes = 0;
};

// Shows progress on stderr. All inputs are opened and compared before anything is written. At least one prefix.
MergeSummary merge(const std::vector<std::string>& prefixes, const std::string& output_prefix, bool overwrite = false);

}  // namespace espalier::data
