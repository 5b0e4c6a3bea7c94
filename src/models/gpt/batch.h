// Token rows to a Batch: labels, loss mask, positions and document starts (Megatron's get_ltor_masks_and_position_ids).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "config/run_config.h"
#include "models/data.h"
#include "tensor/batch.h"
#include "text/tokenizer.h"

namespace espalier::models {

struct MaskOptions {
  std::optional<int32_t> eod;         // needed by each of the following
  bool reset_position_ids = false;    // positions start again after every end of document
  bool reset_attention_mask = false;  // no attention across document ends; the EOD belongs to the document before it
  bool eod_mask_loss = false;         // no loss where the input is EOD
};

// Refuses resets and EOD masks when the tokenizer has no end-of-document token.
MaskOptions mask_options(const config::DataConfig& config, const text::Tokenizer& tokenizer);

// Of rows with one array, sequence length + 1 ids.
tensor::Batch make_gpt_batch(const std::vector<SampleRow>& rows, const MaskOptions& options);

}  // namespace espalier::models
