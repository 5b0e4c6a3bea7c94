#include "kernels/dropout.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/cpu_isa.h"
#include "base/error.h"
#include "kernels/reference_test.h"
#include "tensor/rng.h"
#include "tensor/saved.h"

namespace espalier::kernels {
namespace dropout_test {

using reference::expect_within;
using reference::half_denormal;
using reference::random;
using reference::rounding;
using reference::StreamTypes;
using reference::TestParam;

const tensor::PhiloxKey kKey = tensor::philox_key(1234, "dropout/layers.3.mlp");

// The definition of dropout.h, one element at a time: 0 or 1 / (1 - probability), [s, b, h] in double.
at::Tensor factors(int64_t length, const std::vector<int64_t>& samples, int64_t features, double probability) {
  at::Tensor result = at::empty({length, static_cast<int64_t>(samples.size()), features}, at::kDouble);
  double* out = result.data_ptr<double>();
  for (int64_t position = 0; position < length; ++position) {
    for (const int64_t sample : samples) {
      for (int64_t feature = 0; feature < features; ++feature) {
        const tensor::PhiloxBlock bits = tensor::philox4x32(
            kKey, {{static_cast<uint32_t>(feature / 4), static_cast<uint32_t>(position),
                    static_cast<uint32_t>((sample >> 32) * 65536), static_cast<uint32_t>(sample & 0xFFFFFFFF)}});
        *out++ = bits.word[feature % 4] < probability * 4294967296.0 ? 0.0 : 1 / (1 - probability);
      }
    }
  }
  return result;
}

const std::vector<int64_t> kSamples = {0, 7, (int64_t{3} << 32) + 5};

DropoutSite site(double probability, const std::vector<int64_t>& samples) {
  return {.probability = probability, .key = kKey, .sample_numbers = &samples};
}

class DropoutTest : public testing::TestWithParam<StreamTypes> {};

TEST_P(DropoutTest, MatchesItsDefinitionElementByElement) {
  const at::ScalarType type = GetParam().compute;
  for (const int64_t features : {1, 7, 33, 64, 1023}) {
    for (const double probability : {0.1, 0.5, 0.999}) {
      at::Tensor x = random({5, 3, features}, type, 1).requires_grad_();
      const at::Tensor dy = random({5, 3, features}, type, 2);
      const at::Tensor y = dropout(x, site(probability, kSamples));
      y.backward(dy);
      const at::Tensor factor = factors(5, kSamples, features, probability);
      const at::Tensor want = x.detach().to(at::kDouble) * factor, want_dx = dy.to(at::kDouble) * factor;
      const double bound = rounding(type) * 1.01 + 0x1p-23;
      expect_within(y, want, want.abs() * bound + half_denormal(type), "y");
      expect_within(x.grad(), want_dx, want_dx.abs() * bound + half_denormal(type), "dx");
      EXPECT_TRUE(at::equal(y.detach() == 0, factor == 0));
    }
  }
}

TEST_P(DropoutTest, BiasDropoutAddMatchesDoubleOverTwoMicroBatches) {
  const auto [type, stream] = GetParam();
  for (const int64_t features : {1, 7, 33, 1023}) {
    for (const double probability : {0.0, 0.1}) {
      for (const bool with_bias : {false, true}) {
        TestParam bias(random({features}, type, 3));
        tensor::GradQueue queue;
        const at::Tensor b = with_bias ? bias.param.value.to(at::kDouble) : at::zeros({features}, at::kDouble);
        const at::Tensor factor =
            probability > 0 ? factors(30, kSamples, features, probability) : at::ones({30, 3, features}, at::kDouble);
        at::Tensor dbias = at::zeros({features}, at::kDouble), dbias_error = at::full({features}, 1e-7, at::kDouble);
        for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
          at::Tensor x = random({30, 3, features}, type, 10 + micro_batch).requires_grad_();
          at::Tensor residual = random({30, 3, features}, stream, 20 + micro_batch).requires_grad_();
          const at::Tensor dy = random({30, 3, features}, stream, 30 + micro_batch);
          const at::Tensor y =
              bias_dropout_add(x, with_bias ? &bias.param : nullptr, residual, site(probability, kSamples), queue);
          y.backward(dy);
          const at::Tensor branch = (x.detach().to(at::kDouble) + b) * factor,
                           wide_residual = residual.detach().to(at::kDouble);
          const at::Tensor want = branch + wide_residual, want_dx = dy.to(at::kDouble) * factor;
          const at::Tensor terms = (x.detach().to(at::kDouble).abs() + b.abs()) * factor + wide_residual.abs();
          ASSERT_TRUE(y.scalar_type() == stream && x.grad().scalar_type() == type);
          expect_within(y, want, want.abs() * rounding(stream) * 1.01 + terms * 4 * 0x1p-24 + half_denormal(stream),
                        "y");
          expect_within(x.grad(), want_dx, want_dx.abs() * (rounding(type) * 1.01 + 0x1p-23) + half_denormal(type),
                        "dx");
          EXPECT_TRUE(at::equal(residual.grad(), dy));
          dbias += want_dx.view({-1, features}).sum(0);
          dbias_error += want_dx.abs().view({-1, features}).sum(0) * 100 * 0x1p-24;
        }
        expect_within(bias.added(), with_bias ? dbias : at::zeros_like(dbias), dbias_error, "dbias");
      }
    }
  }
}

TEST(Dropout, ShareOfDroppedElementsIsTheProbability) {
  const std::vector<int64_t> samples = {11, 12};
  for (const double probability : {0.05, 0.1, 0.5}) {
    const at::Tensor y = dropout(at::ones({128, 2, 768}), site(probability, samples));
    const double count = static_cast<double>(y.numel());
    const double dropped = (y == 0).sum().item<double>() / count;
    // Five standard deviations of a binomial share.
    EXPECT_NEAR(dropped, probability, 5 * std::sqrt(probability * (1 - probability) / count));
    EXPECT_EQ(y.max().item<float>(), static_cast<float>(1 / (1 - probability)));
  }
}

TEST(Dropout, RowsOfABatchEqualThoseOfItsSamplesAlone) {
  const std::vector<int64_t> samples = {40, 41, 42, 1000};
  const at::Tensor x = random({9, 4, 33}, at::kBFloat16, 1);
  const at::Tensor together = dropout(x, site(0.1, samples));
  for (int64_t row = 0; row < 4; ++row) {
    const std::vector<int64_t> alone = {samples[row]};
    EXPECT_TRUE(at::equal(dropout(x.narrow(1, row, 1).contiguous(), site(0.1, alone)), together.narrow(1, row, 1)));
  }
}

TEST_P(DropoutTest, PartsOfTheSequencePutTogetherEqualTheWhole) {
  const at::ScalarType type = GetParam().compute;
  constexpr int64_t kLength = 50, kFeatures = 33;
  const at::Tensor x = random({kLength, 3, kFeatures}, type, 1), residual = random({kLength, 3, kFeatures}, type, 2);
  const at::Tensor dy = random({kLength, 3, kFeatures}, type, 3);
  for (const CpuIsa isa : reference::instruction_sets()) {
    const ForceCpuIsa force(isa);
    // Result, gradient of x, and gradient of the bias of rows first .. first + length - 1.
    const auto part = [&](int64_t first, int64_t length) {
      TestParam bias(random({kFeatures}, type, 4));
      tensor::GradQueue queue;
      DropoutSite at = site(0.3, kSamples);
      at.first_position = first;
      at::Tensor rows = x.narrow(0, first, length).clone().requires_grad_();
      const at::Tensor y = bias_dropout_add(rows, &bias.param, residual.narrow(0, first, length).clone(), at, queue);
      EXPECT_TRUE(at::equal(dropout(rows.detach(), at) == 0,
                            factors(kLength, kSamples, kFeatures, 0.3).narrow(0, first, length) == 0));
      y.backward(dy.narrow(0, first, length));
      return std::vector<at::Tensor>{y.detach(), rows.grad(), bias.added()};
    };
    const std::vector<at::Tensor> whole = part(0, kLength);
    for (const int64_t num_parts : {2, 3, 4}) {
      std::vector<at::Tensor> y, dx;
      at::Tensor dbias = at::zeros({kFeatures}, at::kDouble);
      const int64_t share = (kLength + num_parts - 1) / num_parts;
      for (int64_t first = 0; first < kLength; first += share) {
        const std::vector<at::Tensor> got = part(first, std::min(share, kLength - first));
        y.push_back(got[0]);
        dx.push_back(got[1]);
        dbias += got[2];
      }
      EXPECT_TRUE(at::equal(at::cat(y), whole[0])) << num_parts << " parts on " << cpu_isa_name(isa);
      EXPECT_TRUE(at::equal(at::cat(dx), whole[1])) << num_parts << " parts on " << cpu_isa_name(isa);
      // The same 150 numbers, summed in another order, each time onto the 0.25 of TestParam.
      const at::Tensor terms = whole[1].to(at::kDouble).abs().view({-1, kFeatures}).sum(0) * (1 + rounding(type)) + 1;
      expect_within(dbias, whole[2], terms * 2 * 154 * 0x1p-24, "dbias");
    }
  }
}

TEST(Dropout, NumberOfThreadsChangesNoBitOfMasksAndSums) {
  const int threads_before = at::get_num_threads();
  at::Tensor outputs[3], sums[3];
  for (int threads = 1; threads <= 3; ++threads) {
    at::set_num_threads(threads);
    TestParam bias(random({257}, at::kBFloat16, 3));
    tensor::GradQueue queue;
    at::Tensor x = random({100, 3, 257}, at::kBFloat16, 1).requires_grad_();
    const at::Tensor y = bias_dropout_add(x, &bias.param, x.detach(), site(0.1, kSamples), queue);
    y.backward(random({100, 3, 257}, at::kBFloat16, 2));
    outputs[threads - 1] = y.detach(), sums[threads - 1] = bias.param.grad;
  }
  at::set_num_threads(threads_before);
  EXPECT_TRUE(at::equal(outputs[0], outputs[1]) && at::equal(outputs[0], outputs[2]));
  EXPECT_TRUE(at::equal(sums[0], sums[1]) && at::equal(sums[0], sums[2]));
}

TEST(Dropout, DroppedInfinityIsZero) {
  const at::Tensor y = dropout(at::full({4, 3, 64}, INFINITY), site(0.5, kSamples));
  EXPECT_FALSE(at::isnan(y).any().item<bool>());
  EXPECT_TRUE((y == 0).any().item<bool>());
}

TEST(Dropout, KeepsNothingAndWithoutGradientsBuildsNoGraph) {
  bool kept = false;
  const tensor::ObserveSaved observe([&](const char*, const tensor::SavedTensor&) { kept = true; });
  TestParam bias(at::zeros({8}));
  tensor::GradQueue queue;
  at::Tensor x = at::ones({2, 3, 8}).requires_grad_();
  EXPECT_TRUE(bias_dropout_add(x, &bias.param, x.detach(), site(0.1, kSamples), queue).requires_grad());
  EXPECT_TRUE(bias_dropout_add(x.detach(), nullptr, x, site(0.1, kSamples), queue).requires_grad());
  EXPECT_FALSE(bias_dropout_add(x.detach(), nullptr, x.detach(), site(0.1, kSamples), queue).requires_grad());
  EXPECT_TRUE(dropout(x, site(0, kSamples)).is_same(x));
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(bias_dropout_add(x, &bias.param, x, site(0.1, kSamples), queue).requires_grad());
  EXPECT_FALSE(dropout(x, site(0.1, kSamples)).requires_grad());
  EXPECT_FALSE(kept);
}

TEST(Dropout, ProbabilityOneAndMissingSampleNumbersAreABug) {
  const at::Tensor x = at::ones({2, 2, 8});
  EXPECT_THROW(dropout(x, site(1.0, kSamples)), InternalError);
  EXPECT_THROW(dropout(x, site(0.1, kSamples)), InternalError);  // three numbers for two rows
  EXPECT_THROW(dropout(x, DropoutSite{.probability = 0.1, .key = kKey}), InternalError);
}

INSTANTIATE_TEST_SUITE_P(ComputeTypes, DropoutTest, testing::ValuesIn(reference::kStreamTypes));

}  // namespace dropout_test
}  // namespace espalier::kernels
