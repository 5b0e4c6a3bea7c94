// What a Hugging Face folder computes, as the formulas of its family say: plain ATen operations on tensors read by
// their foreign names, from the folder's own config.json.
//
// Written apart from src/convert and from our models, of which it uses nothing but the names of inputs and outputs, so
// that a conversion is checked by something that does not share its mistakes. Slow and simple; one layer is in memory
// at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <optional>

#include "models/probe.h"

namespace espalier::infer {

// Inputs and outputs are those of the probe of our family (models/probe.h); fp32. `rounding`: every weight is rounded
// to this type first.
models::NamedTensors hf_reference(const std::filesystem::path& folder, const models::NamedTensors& inputs,
                                  std::optional<at::ScalarType> rounding);

}  // namespace espalier::infer
