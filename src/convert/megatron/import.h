// Makes a checkpoint of ours from one that Megatron-LM, Megatron-DeepSpeed or DeepSpeed wrote: `espalier checkpoint
// import-megatron`. Weights, master weights, both moments, and where the run stands, so that training continues in any
// layout. What is in memory at a time are two blocks of a tensor, whatever the size of the model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "convert/megatron/merge.h"

namespace espalier::convert {

struct MegatronImport {
  std::filesystem::path input;  // that run's --save folder, or the folder of one checkpoint
  std::filesystem::path save;
  std::optional<int64_t> step;
  bool with_optimizer = true;
  bool average_copies =
      false;  // of tensors that several ranks hold and that differ: the mean instead of the first rank's
  std::vector<std::string> train_options;  // of train: they replace the checkpoint's arguments
};

struct MegatronImportReport {
  MegatronFiles files;
  std::string family;  // of ours
  std::filesystem::path step_folder;
  int64_t step = 0;
  int64_t num_tensors = 0, num_parameters = 0, num_bytes = 0;
  bool has_optimizer = false;
  int64_t num_compared_copies = 0;
  std::vector<CopyDifference> differences;  // between copies, largest first
  std::vector<std::string> remarks;
};

MegatronImportReport import_megatron(const MegatronImport& request);

}  // namespace espalier::convert
