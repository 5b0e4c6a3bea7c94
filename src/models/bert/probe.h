#pragma once

#include "models/probe.h"

namespace espalier::models {

// Inputs: "ids", "used" (1, or 0 for padding, which the second row ends in), and with token types "types". Outputs:
// "logits", 0 where there is padding, and with a binary head "order" [b, 2].
extern const Probe kBertProbe;

// FamilyRuntime::masked_logits. More ids than the model has learned positions: UserError.
at::Tensor bert_masked_logits(const nn::LayerBuilder& builder, const config::RunConfig& run, const at::Tensor& ids);

}  // namespace espalier::models
