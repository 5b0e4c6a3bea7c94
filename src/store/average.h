// Mean of the weights of several checkpoints: a model that is often better than the last of them, for evaluation,
// export or finetuning (arXiv 1803.05407; what "souping" and the ends of WSD runs use).
#pragma once

#include <filesystem>
#include <vector>

namespace espalier::store {

struct AverageRequest {
  std::vector<std::filesystem::path> step_folders;  // at least two
  // One for each folder, above 0; empty: all count the same. They are divided by their sum.
  std::vector<double> weights;
  std::filesystem::path run_folder;  // gets the step: that of the checkpoint that is furthest
};

// Writes a checkpoint of weights alone, in fp32: the mean of the fp32 master weights, or of the weights themselves
// where a checkpoint has no others. Without `weights` the sum is taken in fp32, in the order of the folders, and
// divided by their number in fp32; with them it is taken in double and rounded once. The rest (configuration,
// tokenizer, counters) is that of the checkpoint that is furthest. Shows progress. UserError (kBadData) with every
// problem where the checkpoints are not of one model; damaged blocks are named. Returns the step folder.
std::filesystem::path write_average(const AverageRequest& request);

}  // namespace espalier::store
