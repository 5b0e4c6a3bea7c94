#include "spec/rotary.h"

#include <gtest/gtest.h>

namespace espalier::spec::rotary_angles_test {
namespace {

Rotary rotary_config(int64_t head_size, double base, RopeScaling::Kind kind, double factor, int64_t original) {
  Rotary config;
  config.head_size = head_size;
  config.base = base;
  config.scaling.kind = kind;
  config.scaling.factor = factor;
  config.scaling.original_max_position_embeddings = original;
  return config;
}

void expect_frequencies(const RotaryAngles& angles, const std::vector<float>& expected) {
  ASSERT_EQ(angles.frequencies.size(), expected.size());
  for (size_t pair = 0; pair < expected.size(); ++pair)
    EXPECT_NEAR(angles.frequencies[pair], expected[pair], 3e-7F * expected[pair]) << "pair " << pair;
}

TEST(RotaryAngles, PlainFrequenciesArePowersOfTheBase) {
  Rotary config = rotary_config(16, 16, RopeScaling::Kind::kNone, 1, 0);
  config.percent = 0.5;
  expect_frequencies(rotary_angles(config, 9), {1.0F, 0.5F, 0.25F, 0.125F});
}

// The numbers of transformers 5.23 (modeling_rope_utils.py) for the same settings.
TEST(RotaryAngles, ScaledFrequenciesAreTransformers) {
  using Kind = RopeScaling::Kind;
  expect_frequencies(rotary_angles(rotary_config(8, 1e4, Kind::kLinear, 2.5, 0), 9),
                     {0.400000006F, 0.0399999991F, 0.00399999972F, 0.000400000019F});
  expect_frequencies(rotary_angles(rotary_config(16, 5e5, Kind::kLlama3, 8, 8192), 9),
                     {1.0F, 0.193922758F, 0.0376060307F, 0.00729266508F, 0.000524846022F, 3.42810235e-05F,
                      6.64786967e-06F, 1.28917316e-06F});
  const RotaryAngles yarn = rotary_angles(rotary_config(16, 1e4, Kind::kYarn, 4, 256), 9);
  expect_frequencies(yarn, {1.0F, 0.25693506F, 0.0625F, 0.0138349654F, 0.00249999994F, 0.000790569466F, 0.000250000012F,
                            7.90569466e-05F});
  EXPECT_DOUBLE_EQ(yarn.attention_factor, 1.138629436111989);
}

TEST(RotaryAngles, LongRopeChoosesByTheLengthOfTheSequence) {
  Rotary config = rotary_config(6, 1e4, RopeScaling::Kind::kLongRope, 1, 16);
  config.max_position_embeddings = 64;
  config.scaling.short_factors = {1.0, 1.5, 2.0};
  config.scaling.long_factors = {1.25, 3.0, 5.0};
  expect_frequencies(rotary_angles(config, 16), {1.0F, 0.0309439208F, 0.00107721717F});
  expect_frequencies(rotary_angles(config, 17), {0.800000012F, 0.0154719604F, 0.000430886837F});
  EXPECT_DOUBLE_EQ(rotary_angles(config, 17).attention_factor, 1.224744871391589);
  config.scaling.attention_factor = 1.5;
  EXPECT_DOUBLE_EQ(rotary_angles(config, 17).attention_factor, 1.5);
}

}  // namespace
}  // namespace espalier::spec::rotary_angles_test
