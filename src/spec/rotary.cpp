#include "spec/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace espalier::spec {
namespace {

// Llama 3.1: waves that fit often into the original length stay, those that do not are stretched.
double llama3_frequency(double frequency, const RopeScaling& scaling) {
  const double original = static_cast<double>(scaling.original_max_position_embeddings);
  const double turns = original * frequency / (2 * std::numbers::pi);
  if (turns < scaling.low_freq_factor) return frequency / scaling.factor;
  if (turns > scaling.high_freq_factor) return frequency;
  const double share = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1 - share) * frequency / scaling.factor + share * frequency;
}

// The channels between which yarn goes over from the frequencies that stay to those that are stretched.
struct Ramp {
  double low = 0, high = 0;
  double at(double pair) const { return std::clamp((pair - low) / (high - low), 0.0, 1.0); }
};

Ramp yarn_ramp(const Rotary& rotary) {
  const RopeScaling& scaling = rotary.scaling;
  const double size = static_cast<double>(rotary.size());
  const auto channel_of = [&](double turns) {
    const double original = static_cast<double>(scaling.original_max_position_embeddings);
    return size * std::log(original / (turns * 2 * std::numbers::pi)) / (2 * std::log(rotary.base));
  };
  Ramp ramp{std::max(0.0, std::floor(channel_of(scaling.beta_fast))),
            std::min(size - 1, std::ceil(channel_of(scaling.beta_slow)))};
  if (ramp.low == ramp.high) ramp.high += 0.001;
  return ramp;
}

double attention_factor(const Rotary& rotary) {
  const RopeScaling& scaling = rotary.scaling;
  if (scaling.attention_factor > 0) return scaling.attention_factor;
  if (scaling.kind == RopeScaling::Kind::kYarn) return scaling.factor > 1 ? 0.1 * std::log(scaling.factor) + 1 : 1;
  if (scaling.kind != RopeScaling::Kind::kLongRope) return 1;
  const double original = static_cast<double>(scaling.original_max_position_embeddings);
  const double factor =
      scaling.factor > 1 ? scaling.factor : static_cast<double>(rotary.max_position_embeddings) / original;
  return factor > 1 ? std::sqrt(1 + std::log(factor) / std::log(original)) : 1;
}

}  // namespace

RotaryAngles rotary_angles(const Rotary& rotary, int64_t sequence_length) {
  using Kind = RopeScaling::Kind;
  const RopeScaling& scaling = rotary.scaling;
  const auto pairs = static_cast<size_t>(rotary.size() / 2);
  const std::vector<double>& divisors =
      sequence_length > scaling.original_max_position_embeddings ? scaling.long_factors : scaling.short_factors;
  ESPALIER_CHECK(scaling.kind != Kind::kLongRope || divisors.size() == pairs, divisors.size(), " factors for ", pairs,
                 " pairs");
  const Ramp ramp = scaling.kind == Kind::kYarn ? yarn_ramp(rotary) : Ramp{};
  RotaryAngles angles{.frequencies = {}, .attention_factor = attention_factor(rotary)};
  for (size_t pair = 0; pair < pairs; ++pair) {
    const double plain = std::pow(rotary.base, -2 * static_cast<double>(pair) / static_cast<double>(rotary.size()));
    double frequency = plain;
    switch (scaling.kind) {
      case Kind::kNone: break;
      case Kind::kLinear: frequency = plain / scaling.factor; break;
      case Kind::kLlama3: frequency = llama3_frequency(plain, scaling); break;
      case Kind::kYarn: {
        const double stretched = ramp.at(static_cast<double>(pair));
        frequency = stretched * plain / scaling.factor + (1 - stretched) * plain;
        break;
      }
      case Kind::kLongRope: frequency = plain / divisors[pair]; break;
    }
    angles.frequencies.push_back(static_cast<float>(frequency));
  }
  return angles;
}

}  // namespace espalier::spec
