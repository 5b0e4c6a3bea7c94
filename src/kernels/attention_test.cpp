#include "kernels/attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "base/cpu_isa.h"
#include "base/error.h"
#include "kernels/attention_reference_test.h"
#include "kernels/internal/attention_tiles.h"
#include "kernels/reference_test.h"

namespace espalier::kernels {
namespace attention_test {

using namespace attention_reference;

TEST(Attention, MatchesTheFormulaInEverySizeAndType) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    int64_t turn = 0;
    for (const int64_t s : {1, 7, 33, 65, 130}) {
      for (const int64_t head_size : {8, 16, 24, 64, 80}) {
        const Sizes sizes{s, turn % 2 == 0 ? 3 : 1, turn % 3 == 0 ? 5 : 1, head_size};
        compare_with_formula(sizes, {}, type);
        compare_with_formula(sizes, {true, true, true, true}, type);
        ++turn;
      }
    }
  }
}

TEST(Attention, MatchesTheFormulaForEveryCombinationOfMasks) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (int bits = 0; bits < 16; ++bits) {
      const Masks masks{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0};
      compare_with_formula({130, 2, 3, 24}, masks, type);
      compare_with_formula({67, 3, 2, 64}, masks, type);
    }
  }
}

TEST(Attention, LargeScoresDoNotOverflow) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    compare_with_formula({65, 1, 2, 64}, {}, type, 100);  // scores of +-1e5
    const at::Tensor qkv = at::full({33, 1, 3 * 16}, 200.0, at::kFloat).to(type).requires_grad_(true);
    const at::Tensor result = attention(qkv, {}, {1, 1}, kLayer);
    // A mean of at most 33 equal values.
    EXPECT_LE((result.to(at::kDouble) - 200).abs().max().item<double>(),
              200 * (40 * 0x1p-24 + rounding_of(type).relative));
  }
}

TEST(Attention, ANotANumberIsNotHidden) {
  at::Tensor qkv = random_qkv({40, 1, 1, 16}, at::kFloat);
  qkv[20][0][3] = std::numeric_limits<float>::quiet_NaN();  // in query 20
  const at::Tensor found = at::isnan(attention(qkv, {}, {1, 1}, kLayer)).any(-1).view({40});
  const at::Tensor wanted = at::arange(40) == 20;
  EXPECT_TRUE(at::equal(found, wanted)) << found;
}

TEST(Attention, AQueryThatSeesOneKeyReturnsItsValue) {
  AttentionContext context;
  const Sizes sizes{35, 2, 2, 8};
  const at::Tensor qkv = random_qkv(sizes, at::kFloat);
  context.first_key = at::arange(sizes.s, at::kInt).repeat({sizes.b, 1}).contiguous();  // documents of one token
  const at::Tensor values = qkv.view({sizes.s, sizes.b, sizes.heads, 3, sizes.head_size}).select(3, 2);
  EXPECT_TRUE(at::equal(attention(qkv, context, sizes.of(), kLayer), values.reshape({sizes.s, sizes.b, -1})));
}

TEST(Attention, GradientIsTheSlopeOfFiniteDifferences) {
  const Sizes sizes{37, 2, 3, 16};
  for (const Masks& masks : {Masks{}, Masks{true, true, true, true}}) {
    const AttentionContext context = make_context(sizes, masks);
    const at::Tensor qkv = random_qkv(sizes, at::kFloat);
    const at::Tensor weights = at::randn({sizes.s, sizes.b, sizes.heads * sizes.head_size}, at::kDouble);
    const auto loss = [&](const at::Tensor& x) {
      return (attention(x, context, sizes.of(), kLayer).to(at::kDouble) * weights).sum();
    };
    const at::Tensor leaf = qkv.clone().requires_grad_(true);
    const at::Tensor gradient = torch::autograd::grad({loss(leaf)}, {leaf})[0];
    for (int64_t trial = 0; trial < 3; ++trial) {
      const at::Tensor direction = at::randn_like(qkv);
      const double step = 0x1p-10;
      const double slope = ((loss(qkv + step * direction) - loss(qkv - step * direction)) / (2 * step)).item<double>();
      const double wanted = (gradient.to(at::kDouble) * direction).sum().item<double>();
      // Truncation of order step^2, and rounding of the result (1e-6 in total) over the step.
      EXPECT_NEAR(slope, wanted, 2e-3 * gradient.norm().item<double>());
    }
  }
}

TEST(Attention, DecodingThroughACacheGivesTheRowsOfTheWhole) {
  const Sizes sizes{130, 3, 2, 24};
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const Masks& masks : {Masks{}, Masks{true, false, true, false}, Masks{false, true, true, false}}) {
      const AttentionContext context = make_context(sizes, masks);
      const at::Tensor qkv = random_qkv(sizes, type).requires_grad_(true);
      std::vector<int64_t> pieces = {40, 1, 1, 7, 33};
      while (pieces.size() < 53) pieces.push_back(1);
      const Expected wanted = expected(qkv, at::zeros({sizes.s, sizes.b, 48}), sizes, context, rounding_of(type));
      for (const CpuIsa isa : reference::instruction_sets()) {
        const ForceCpuIsa force(isa);
        const at::Tensor found = through_cache(qkv, context, sizes, pieces);
        EXPECT_FALSE(found.requires_grad());
        expect_within(found, wanted.result, wanted.result_bound,
                      describe(sizes, masks, type) + " on " + cpu_isa_name(isa));
      }
    }
  }
}

TEST(Attention, AFullCacheIsRefused) {
  const Sizes sizes{4, 1, 1, 8};
  KeyValueCache cache;
  cache.capacity = 3;
  cache.lengths = {0};
  cache.layers.assign(kLayer + 1, {at::empty({1, 1, 3, 8}), at::empty({1, 1, 3, 8}), {}});
  AttentionContext context;
  context.cache = &cache;
  EXPECT_THROW(attention(random_qkv(sizes, at::kFloat), context, {1, 1}, kLayer), InternalError);
}

TEST(Attention, RepeatsToTheLastBit) {
  const Sizes sizes{130, 3, 5, 64};
  const AttentionContext context = make_context(sizes, {true, true, true, true});
  const at::Tensor qkv = random_qkv(sizes, at::kBFloat16).requires_grad_(true);
  const auto run = [&] {
    const at::Tensor result = attention(qkv, context, sizes.of(), kLayer);
    return std::vector<at::Tensor>{result, torch::autograd::grad({result}, {qkv}, {at::ones_like(result)})[0]};
  };
  const std::vector<at::Tensor> first = run(), second = run();
  EXPECT_TRUE(at::equal(first[0], second[0]));
  EXPECT_TRUE(at::equal(first[1], second[1]));
}

TEST(AttentionTiles, PowersOfTwoAreExactToTwoToTheMinus22) {
  for (const CpuIsa isa : reference::instruction_sets()) {
    const ForceCpuIsa force(isa);
    for (int number = 0; number <= 270; ++number) {
      const float start = -0.37f * static_cast<float>(number);
      std::vector<float> x(33);
      for (size_t i = 0; i < x.size(); ++i) x[i] = std::max(start - 0.0113f * static_cast<float>(i), -100.0f);
      std::vector<float> powers = x;
      tile_ops(AttentionType::kFloat).exp2(powers.data(), static_cast<int64_t>(powers.size()));
      for (size_t i = 0; i < x.size(); ++i) {
        const double wanted = std::exp2(static_cast<double>(x[i]));
        EXPECT_LE(std::abs(powers[i] - wanted), 0x1p-22 * wanted) << x[i] << " on " << cpu_isa_name(isa);
      }
    }
    std::vector<float> special = {0.0f, -100.5f, -1e30f, -std::numeric_limits<float>::infinity(), std::nanf("")};
    tile_ops(AttentionType::kFloat).exp2(special.data(), static_cast<int64_t>(special.size()));
    EXPECT_EQ(special[0], 1.0f);
    for (const size_t i : {1, 2, 3}) EXPECT_EQ(special[i], 0.0f) << i << " on " << cpu_isa_name(isa);
    EXPECT_TRUE(std::isnan(special[4])) << cpu_isa_name(isa);
  }
}

TEST(AlibiSlopes, EqualMegatronsToTheLastBit) {
  // Row n - 1 holds the slopes of n heads, n = 1 .. 64, float32; made by Megatron-DeepSpeed.
  std::ifstream file("tests/data/megatron-oracle/model/alibi_slopes.npy", std::ios::binary);
  std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  ASSERT_EQ(bytes.size(), 128 + 64 * 64 * 4);
  for (int64_t heads = 1; heads <= 64; ++heads) {
    const at::Tensor slopes = alibi_slopes(heads);
    ASSERT_EQ(slopes.numel(), heads);
    EXPECT_EQ(std::memcmp(slopes.const_data_ptr(), &bytes[128 + (heads - 1) * 64 * 4], heads * 4), 0)
        << heads << " heads";
  }
}

}  // namespace attention_test
}  // namespace espalier::kernels
