// The angles of rotary positions (Su et al. 2021): channel pair i of position p turns by p * frequencies[i].
#pragma once

#include <cstdint>
#include <vector>

#include "spec/gpt.h"

namespace espalier::spec {

struct RotaryAngles {
  // One for each pair of rotated channels. Rounded to fp32 as the models were trained with, whose products with large
  // positions show the rounding.
  std::vector<float> frequencies;
  double attention_factor = 1;  // of cosine and sine (yarn, longrope)
};

// For sequences of up to `sequence_length` positions: longrope has other frequencies for those beyond the original
// length. All positions of a sequence must be turned alike, so generation asks for the length it may reach.
RotaryAngles rotary_angles(const GptConfig& config, int64_t sequence_length);

}  // namespace espalier::spec
