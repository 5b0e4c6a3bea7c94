// Does a Hugging Face folder compute what a checkpoint computes? The check behind every conversion.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "models/probe.h"

namespace espalier::infer {

struct LogitsComparison {
  int64_t num_tokens = 0;
  // What of the model shows only at later positions than were compared: "its window of 4,096 tokens". Usually nothing.
  std::vector<std::string> not_reached;
  double largest_difference = 0, largest_logit = 0;
  double tolerance = 0;  // of the difference: what fp32 leaves between two orders of summation
  bool equal() const { return largest_difference <= tolerance; }  // false where one is NaN
  // With options that are not the checkpoint's: how far they take its logits from its own.
  std::optional<double> changed_by;
  models::NamedTensors inputs, ours;  // what was compared, and what we make of it
};

// Which side was made from the other, and so has the rounded weights.
enum class Conversion { kImport, kExport };

struct ComparedModel {
  Conversion conversion = Conversion::kImport;
  std::vector<std::string> options = {};  // of train: instead of those that the checkpoint was saved with
  bool ema = false;                       // the folder was made of the moving average of the weights (train --ema)
  models::NamedTensors inputs = {};       // instead of the family's (models/probe.h)
};

// The logits of fixed token ids, and whatever else the model's heads give, both in fp32: the checkpoint by our model,
// the folder by its family's formulas (hf_reference.h). Weights are read in their own type; those of the side that the
// other was made from are rounded to the other's type first. Needs memory for the model in fp32 and the largest layer.
LogitsComparison compare_logits(const std::filesystem::path& step_folder, const std::filesystem::path& hf_folder,
                                const ComparedModel& model);

// By our model in fp32 with the stored weights (models/probe.h).
models::NamedTensors checkpoint_outputs(const std::filesystem::path& step_folder, const models::NamedTensors& inputs);

}  // namespace espalier::infer
