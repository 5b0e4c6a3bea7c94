#include "kernels/attention.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/dispatch.h"
#include "kernels/internal/attention_tiles.h"
#include "kernels/reference_test.h"
#include "tensor/rng.h"

namespace espalier::kernels {
namespace attention_test {

using tensor::AttentionContext;
using tensor::KeyValueCache;

constexpr int64_t kLayer = 3;

struct Sizes {
  int64_t s, b, heads, head_size;
};

struct Masks {
  bool documents = false, window = false, alibi = false, dropout = false;
};

std::string describe(const Sizes& sizes, const Masks& masks, at::ScalarType type) {
  return concat("s=", sizes.s, " b=", sizes.b, " heads=", sizes.heads, " head_size=", sizes.head_size,
                masks.documents ? " documents" : "", masks.window ? " window" : "", masks.alibi ? " alibi" : "",
                masks.dropout ? " dropout" : "", " ", c10::toString(type));
}

AttentionContext make_context(const Sizes& sizes, const Masks& masks) {
  AttentionContext context;
  if (masks.documents) {  // documents of 5, 16 and 23 tokens in turn, shifted from row to row
    context.first_key = at::empty({sizes.b, sizes.s}, at::kInt);
    auto first_key = context.first_key.accessor<int32_t, 2>();
    for (int64_t row = 0; row < sizes.b; ++row) {
      int64_t start = 0, length = 5 + row, kind = row;
      for (int64_t position = 0; position < sizes.s; ++position) {
        if (position == start + length) {
          start = position;
          length = std::vector<int64_t>{5, 16, 23}[++kind % 3];
        }
        first_key[row][position] = static_cast<int32_t>(start);
      }
    }
  }
  if (masks.window) context.window = 19;
  if (masks.alibi) context.alibi_slopes = alibi_slopes(sizes.heads);
  if (masks.dropout) {
    context.dropout = 0.3;
    context.seed = 1234;
    for (int64_t row = 0; row < sizes.b; ++row) context.sample_numbers.push_back((row << 33) + 77 * row + 5);
  }
  return context;
}

at::Tensor random_qkv(const Sizes& sizes, at::ScalarType type, double size = 1) {
  at::manual_seed(sizes.s * 1000 + sizes.head_size);
  return (at::randn({sizes.s, sizes.b, sizes.heads * 3 * sizes.head_size}) * size).to(type);
}

// 1 where query may see key, [b, 1, s, s], by the definition.
at::Tensor visible(const Sizes& sizes, const AttentionContext& context) {
  at::Tensor mask = at::zeros({sizes.b, 1, sizes.s, sizes.s}, at::kDouble);
  auto cell = mask.accessor<double, 4>();
  for (int64_t row = 0; row < sizes.b; ++row) {
    for (int64_t query = 0; query < sizes.s; ++query) {
      const int64_t start = context.first_key.defined() ? context.first_key.accessor<int32_t, 2>()[row][query] : 0;
      for (int64_t key = 0; key <= query; ++key) {
        const bool same_document = key >= start;
        const bool near = context.window == 0 || query - key < context.window;
        cell[row][0][query][key] = same_document && near ? 1 : 0;
      }
    }
  }
  return mask;
}

// 0 where the probability is dropped, else 1 / (1 - p), [b, heads, s, s], by the scheme of kernels/dropout.h.
at::Tensor keep_factors(const Sizes& sizes, const AttentionContext& context) {
  at::Tensor factors = at::ones({sizes.b, sizes.heads, sizes.s, sizes.s}, at::kDouble);
  if (context.dropout == 0) return factors;
  const tensor::PhiloxKey key_of_site = tensor::philox_key(context.seed, "dropout/layers.3.attention");
  auto cell = factors.accessor<double, 4>();
  for (int64_t row = 0; row < sizes.b; ++row) {
    const uint64_t sample = context.sample_numbers[row];
    for (int64_t head = 0; head < sizes.heads; ++head) {
      for (int64_t query = 0; query < sizes.s; ++query) {
        for (int64_t key = 0; key <= query; ++key) {
          const tensor::PhiloxBlock block = tensor::philox4x32(
              key_of_site,
              {{uint32_t(key / 4), uint32_t(query), uint32_t(head + 65536 * (sample >> 32)), uint32_t(sample)}});
          cell[row][head][query][key] = block.word[key % 4] < context.dropout * 0x1p32 ? 0 : 1 / (1 - context.dropout);
        }
      }
    }
  }
  return factors;
}

// Error of rounding to a type: relative, and absolute below its smallest normal number.
struct Rounding {
  double relative, absolute;
};

Rounding rounding_of(at::ScalarType type) {
  if (type == at::kHalf) return {0x1p-11, 0x1p-25};
  return {type == at::kFloat ? 0x1p-24 : 0x1p-8, 1e-30};
}

// The formula with s x s tensors in double, its gradient by ATen's autograd, and for both a bound of the rounding
// errors of an implementation that sums in fp32 and rounds probabilities, their gradients, and results to the type.
struct Expected {
  at::Tensor result, d_qkv;              // [s, b, heads * head_size], [s, b, heads * 3 * head_size]
  at::Tensor result_bound, d_qkv_bound;  // the same shapes
};

at::Tensor heads_last(const at::Tensor& x) {  // [b, heads, s, d] -> [s, b, heads * d]
  return x.permute({2, 0, 1, 3}).reshape({x.size(2), x.size(0), x.size(1) * x.size(3)});
}

Expected expected(const at::Tensor& qkv_of_type, const at::Tensor& d_result_of_type, const Sizes& sizes,
                  const AttentionContext& context, const Rounding& rounding) {
  const at::Tensor qkv = qkv_of_type.detach().to(at::kDouble).requires_grad_(true);
  const at::Tensor parts = qkv.view({sizes.s, sizes.b, sizes.heads, 3, sizes.head_size}).permute({3, 1, 2, 0, 4});
  const at::Tensor q = parts[0], k = parts[1], v = parts[2];  // [b, heads, s, d]
  const double scale = 1 / std::sqrt(double(sizes.head_size));
  at::Tensor scores = at::matmul(q, k.transpose(2, 3)) * scale;
  if (context.alibi_slopes.defined()) {
    const at::Tensor position = at::arange(sizes.s, at::kDouble);
    scores = scores +
             context.alibi_slopes.to(at::kDouble).view({-1, 1, 1}) * (position.view({1, -1}) - position.view({-1, 1}));
  }
  const at::Tensor seen = visible(sizes, context), keep = keep_factors(sizes, context);
  const at::Tensor p = at::softmax(scores.masked_fill(seen == 0, -std::numeric_limits<double>::infinity()), -1);
  const at::Tensor result = at::matmul(p * keep, v);
  const at::Tensor d_result =
      d_result_of_type.to(at::kDouble).view({sizes.s, sizes.b, sizes.heads, sizes.head_size}).permute({1, 2, 0, 3});
  Expected out;
  out.d_qkv = torch::autograd::grad({result}, {qkv}, {d_result})[0];
  out.result = heads_last(result.detach());

  // Bounds (Higham, gamma_n = n u): a score is wrong by at most gamma |q| |k|, a probability relatively by twice the
  // row's largest such error; the rest follows the formulas of the backward pass.
  const at::NoGradGuard no_grad;
  const double u = 0x1p-24, t = rounding.relative, sums = (sizes.s + sizes.head_size + 16) * u;
  const at::Tensor score_error = (at::matmul(q.abs(), k.abs().transpose(2, 3)) * scale + scores.abs()) * sums * seen;
  const at::Tensor e = 2 * score_error.amax({-1}, true) + sums;  // [b, heads, s, 1]
  const at::Tensor pm = p * keep;
  const at::Tensor result_bound = (at::matmul((e + t) * pm, v.abs()) + t * result.abs());
  const at::Tensor dp = at::matmul(d_result, v.transpose(2, 3)) * keep, d = (d_result * result).sum(-1, true);
  const at::Tensor dp_error = at::matmul(d_result.abs(), v.abs().transpose(2, 3)) * keep * sums;
  const at::Tensor d_error =
      (d_result * result).abs().sum(-1, true) * sums + (d_result.abs() * result_bound).sum(-1, true);
  const at::Tensor ds = p * (dp - d);
  const at::Tensor ds_error = p * (dp_error + d_error) + e * p * (dp.abs() + d.abs()) + (t + sums) * ds.abs();
  const at::Tensor dq_bound = at::matmul(ds_error, k.abs()) * scale;
  const at::Tensor dk_bound = at::matmul(ds_error.transpose(2, 3), q.abs()) * scale;
  const at::Tensor dv_bound = at::matmul(((e + t + sums) * pm).transpose(2, 3), d_result.abs());
  out.result_bound = heads_last(result_bound) + rounding.absolute;
  const at::Tensor part_bounds = at::stack({dq_bound, dk_bound, dv_bound}).permute({3, 1, 2, 0, 4});
  out.d_qkv_bound = part_bounds.reshape(out.d_qkv.sizes()) + t * out.d_qkv.abs() + rounding.absolute;
  return out;
}

void expect_within(const at::Tensor& found, const at::Tensor& wanted, const at::Tensor& bound,
                   const std::string& what) {
  ASSERT_EQ(found.sizes(), wanted.sizes()) << what;
  const at::Tensor excess = (found.to(at::kDouble) - wanted).abs() - bound;
  ASSERT_FALSE(at::isnan(excess).any().item<bool>()) << what << ": NaN";
  const int64_t worst = excess.argmax().item<int64_t>();
  EXPECT_LE(excess.max().item<double>(), 0)
      << what << ": at " << worst << " found " << found.reshape(-1)[worst].item<double>() << ", wanted "
      << wanted.reshape(-1)[worst].item<double>() << ", allowed error " << bound.reshape(-1)[worst].item<double>();
}

// Result and gradient on every instruction set.
void compare_with_formula(const Sizes& sizes, const Masks& masks, at::ScalarType type, double size = 1) {
  const AttentionContext context = make_context(sizes, masks);
  const at::Tensor qkv = random_qkv(sizes, type, size).requires_grad_(true);
  const at::Tensor d_result = at::randn({sizes.s, sizes.b, sizes.heads * sizes.head_size}).to(type);
  const Expected wanted = expected(qkv, d_result, sizes, context, rounding_of(type));
  for (const CpuIsa isa : reference::instruction_sets()) {
    const ForceCpuIsa force(isa);
    const std::string what = describe(sizes, masks, type) + " on " + cpu_isa_name(isa);
    const at::Tensor result = attention(qkv, context, sizes.heads, kLayer);
    ASSERT_EQ(result.scalar_type(), type) << what;
    const at::Tensor d_qkv = torch::autograd::grad({result}, {qkv}, {d_result})[0];
    expect_within(result.detach(), wanted.result, wanted.result_bound, "result, " + what);
    expect_within(d_qkv, wanted.d_qkv, wanted.d_qkv_bound, "gradient, " + what);
  }
}

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
    const at::Tensor result = attention(qkv, {}, 1, kLayer);
    // A mean of at most 33 equal values.
    EXPECT_LE((result.to(at::kDouble) - 200).abs().max().item<double>(),
              200 * (40 * 0x1p-24 + rounding_of(type).relative));
  }
}

TEST(Attention, ANotANumberIsNotHidden) {
  at::Tensor qkv = random_qkv({40, 1, 1, 16}, at::kFloat);
  qkv[20][0][3] = std::numeric_limits<float>::quiet_NaN();  // in query 20
  const at::Tensor found = at::isnan(attention(qkv, {}, 1, kLayer)).any(-1).view({40});
  const at::Tensor wanted = at::arange(40) == 20;
  EXPECT_TRUE(at::equal(found, wanted)) << found;
}

TEST(Attention, AQueryThatSeesOneKeyReturnsItsValue) {
  AttentionContext context;
  const Sizes sizes{35, 2, 2, 8};
  const at::Tensor qkv = random_qkv(sizes, at::kFloat);
  context.first_key = at::arange(sizes.s, at::kInt).repeat({sizes.b, 1}).contiguous();  // documents of one token
  const at::Tensor values = qkv.view({sizes.s, sizes.b, sizes.heads, 3, sizes.head_size}).select(3, 2);
  EXPECT_TRUE(at::equal(attention(qkv, context, sizes.heads, kLayer), values.reshape({sizes.s, sizes.b, -1})));
}

TEST(Attention, GradientIsTheSlopeOfFiniteDifferences) {
  const Sizes sizes{37, 2, 3, 16};
  for (const Masks& masks : {Masks{}, Masks{true, true, true, true}}) {
    const AttentionContext context = make_context(sizes, masks);
    const at::Tensor qkv = random_qkv(sizes, at::kFloat);
    const at::Tensor weights = at::randn({sizes.s, sizes.b, sizes.heads * sizes.head_size}, at::kDouble);
    const auto loss = [&](const at::Tensor& x) {
      return (attention(x, context, sizes.heads, kLayer).to(at::kDouble) * weights).sum();
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

// Feeds the positions in pieces through a cache; the context's first_key is cut to the piece.
at::Tensor through_cache(const at::Tensor& qkv, AttentionContext context, const Sizes& sizes,
                         const std::vector<int64_t>& pieces) {
  KeyValueCache cache;
  cache.capacity = sizes.s + 5;
  cache.layers.resize(kLayer + 1);
  const auto empty = [&] {  // NaN where nothing was written: an unwritten position must not be read
    return at::full({sizes.b, sizes.heads, cache.capacity, sizes.head_size}, std::numeric_limits<float>::quiet_NaN(),
                    qkv.options());
  };
  for (KeyValueCache::Layer& layer : cache.layers) layer = {empty(), empty()};
  const at::Tensor first_key = context.first_key;
  context.cache = &cache;
  std::vector<at::Tensor> results;
  for (const int64_t piece : pieces) {
    if (first_key.defined()) context.first_key = first_key.narrow(1, cache.length, piece).contiguous();
    results.push_back(attention(qkv.narrow(0, cache.length, piece).contiguous(), context, sizes.heads, kLayer));
    cache.length += piece;
  }
  EXPECT_EQ(cache.length, sizes.s);
  return at::cat(results);
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
  cache.layers.assign(kLayer + 1, {at::empty({1, 1, 3, 8}), at::empty({1, 1, 3, 8})});
  AttentionContext context;
  context.cache = &cache;
  EXPECT_THROW(attention(random_qkv(sizes, at::kFloat), context, 1, kLayer), InternalError);
}

TEST(Attention, RepeatsToTheLastBit) {
  const Sizes sizes{130, 3, 5, 64};
  const AttentionContext context = make_context(sizes, {true, true, true, true});
  const at::Tensor qkv = random_qkv(sizes, at::kBFloat16).requires_grad_(true);
  const auto run = [&] {
    const at::Tensor result = attention(qkv, context, sizes.heads, kLayer);
    return std::vector<at::Tensor>{result, torch::autograd::grad({result}, {qkv}, {at::ones_like(result)})[0]};
  };
  const std::vector<at::Tensor> first = run(), second = run();
  EXPECT_TRUE(at::equal(first[0], second[0]));
  EXPECT_TRUE(at::equal(first[1], second[1]));
}

TEST(AttentionTiles, PowersOfTwoAreExactToTwoToTheMinus22) {
  for (const CpuIsa isa : reference::instruction_sets()) {
    const ForceCpuIsa force(isa);
    for (float start = 0; start >= -100; start -= 0.37f) {
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
