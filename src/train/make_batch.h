// Token rows to a Batch: labels, loss mask, positions and document starts (Megatron's get_ltor_masks_and_position_ids).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tensor/batch.h"

namespace espalier::train {

struct MaskOptions {
  std::optional<int32_t> eod;         // needed by each of the following
  bool reset_position_ids = false;    // positions start again after every end of document
  bool reset_attention_mask = false;  // no attention across document ends; the EOD belongs to the document before it
  bool eod_mask_loss = false;         // no loss where the input is EOD
};

// One training sample: sequence length + 1 ids, and where it stands.
struct SampleRow {
  int64_t sample_number = 0;  // in the order of the run
  int32_t source = 0;         // data set of the blend
  std::vector<int64_t> ids;
};

tensor::Batch make_batch(const std::vector<SampleRow>& rows, const MaskOptions& options);

}  // namespace espalier::train
