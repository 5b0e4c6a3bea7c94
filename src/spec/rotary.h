// The angles of rotary positions (Su et al. 2021): channel pair i of position p turns by p * frequencies[i].
#pragma once

#include <cstdint>
#include <vector>

namespace espalier::spec {

// How the frequencies of rotary positions are changed for sequences longer than those of the first training.
struct RopeScaling {
  enum class Kind {
    kNone,
    kLinear,   // all divided by factor
    kLlama3,   // the low ones divided by factor, between two wavelengths gradually (Llama 3.1)
    kYarn,     // Peng et al. 2023
    kLongRope  // each divided by a factor of its own (Ding et al. 2024)
  };
  Kind kind = Kind::kNone;
  double factor = 1;
  double low_freq_factor = 1, high_freq_factor = 4;  // kLlama3
  double beta_fast = 32, beta_slow = 1;              // kYarn
  int64_t original_max_position_embeddings = 0;      // kLlama3, kYarn, kLongRope
  std::vector<double> short_factors, long_factors;   // kLongRope: one for each pair of rotated channels
  double attention_factor = 0;  // kYarn, kLongRope: multiplies rotated queries and keys; 0: what the method derives

  bool operator==(const RopeScaling&) const = default;
};

// The rotary positions of a model.
struct Rotary {
  int64_t head_size = 0;
  double base = 10000;
  double percent = 1;  // share of the channels of a head that rotates, from the first on
  RopeScaling scaling;
  int64_t max_position_embeddings = 0;

  int64_t size() const { return static_cast<int64_t>(static_cast<double>(head_size) * percent); }
  // > 0: sequences of more positions are turned by other angles (longrope).
  int64_t short_positions() const {
    return scaling.kind == RopeScaling::Kind::kLongRope ? scaling.original_max_position_embeddings : 0;
  }
};

struct RotaryAngles {
  // One for each pair of rotated channels. Rounded to fp32 as the models were trained with, whose products with large
  // positions show the rounding.
  std::vector<float> frequencies;
  double attention_factor = 1;  // of cosine and sine (yarn, longrope)
};

// For sequences of up to `sequence_length` positions: longrope has other frequencies for those beyond the original
// length. All positions of a sequence must be turned alike, so generation asks for the length it may reach.
RotaryAngles rotary_angles(const Rotary& rotary, int64_t sequence_length);

}  // namespace espalier::spec
