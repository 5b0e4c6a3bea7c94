// What a Hugging Face folder computes, as the formulas of its family say: plain ATen operations on tensors read by
// their foreign names, from the folder's own config.json.
//
// Written apart from src/convert and from our models, of which it uses nothing, so that a conversion is checked by
// something that does not share its mistakes. Slow and simple; one layer is in memory at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <optional>

namespace espalier::infer {

// ids: [b, s] int64 -> [b, s, V] fp32. `rounding`: every weight is rounded to this type first.
at::Tensor hf_reference_logits(const std::filesystem::path& folder, const at::Tensor& ids,
                               std::optional<at::ScalarType> rounding);

}  // namespace espalier::infer
