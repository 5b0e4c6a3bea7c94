// The output layer and the embedding of a vocabulary that is divided over ranks, against plain ATen autograd in double
// on the whole. The ranks' exchange is replayed in one process: every shard runs once to give its values, then with the
// values of all.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/cpu_isa.h"
#include "base/error.h"
#include "kernels/embedding.h"
#include "kernels/linear_cross_entropy.h"
#include "kernels/reference_test.h"

namespace espalier::kernels {
namespace vocabulary_shards_test {

using reference::expect_within;
using reference::random;
using reference::rounding;
using reference::TestParam;

struct Rows {
  int64_t first, count;
};

// Equal shares in whole units, the last ones smaller or empty: 33 rows in 4 shards of units of 16 are 16, 16, 1, 0.
std::vector<Rows> divide(int64_t vocabulary, int64_t num_shards, int64_t unit) {
  const int64_t units = (vocabulary + unit - 1) / unit, share = (units + num_shards - 1) / num_shards * unit;
  std::vector<Rows> shards;
  for (int64_t shard = 0; shard < num_shards; ++shard) {
    const int64_t first = std::min(vocabulary, shard * share);
    shards.push_back({first, std::min(vocabulary - first, share)});
  }
  return shards;
}

struct Division {
  int64_t vocabulary, num_shards, unit;
  std::string name() const { return concat(vocabulary, " rows in ", num_shards, " shards of units of ", unit); }
};

std::vector<Division> divisions() {
  std::vector<Division> all;
  for (const int64_t vocabulary : {7, 33, 50}) {
    for (const int64_t num_shards : {1, 2, 3, 4}) {
      for (const int64_t unit : {1, 16}) all.push_back({vocabulary, num_shards, unit});
    }
  }
  all.push_back({2100, 2, 1});  // more than one block of rows in a shard
  return all;
}

struct ShardValues {
  at::Tensor log_sum_exp, label_logits;
};

// What an exchange between the ranks would do, by its definition.
ShardValues over_all(const std::vector<ShardValues>& shards) {
  std::vector<at::Tensor> log_sum_exps, label_logits;
  for (const ShardValues& shard : shards) {
    log_sum_exps.push_back(shard.log_sum_exp);
    label_logits.push_back(shard.label_logits);
  }
  return {at::logsumexp(at::stack(log_sum_exps), 0), at::stack(label_logits).sum(0)};
}

// One problem in `num_tokens` tokens; labels visit every part of the vocabulary, first and last row included.
struct Problem {
  Problem(at::ScalarType type, int64_t num_tokens, int64_t vocabulary)
      : x(random({num_tokens, kHidden}, type, 2, 0.3)), weight(random({vocabulary, kHidden}, type, 1)) {
    at::Tensor labels = at::arange(num_tokens, at::kLong).mul(vocabulary / 3 + 1).remainder(vocabulary);
    labels[num_tokens - 1] = vocabulary - 1;
    at::Tensor mask = at::ones({num_tokens}, at::kFloat);
    mask[2] = 0.0f;
    mask[3] = 0.5f;
    targets = {labels, mask};
  }
  static constexpr int64_t kHidden = 24;
  at::Tensor x, weight;
  TokenTargets targets;
};

struct Oracle {
  at::Tensor losses, d_logits, dw, z_losses;
};

// In double, logits rounded to the compute type as linear_cross_entropy.h promises; the rounding is a constant shift
// for autograd.
Oracle oracle(const Problem& problem, double up, double z_loss = 0) {
  const at::Tensor weight = problem.weight.to(at::kDouble).requires_grad_(true);
  const at::Tensor exact = problem.x.to(at::kDouble).mm(weight.t());
  const at::Tensor rounded = exact.detach().to(problem.x.scalar_type()).to(at::kDouble);
  const at::Tensor logits = exact + (rounded - exact.detach());
  const at::Tensor losses = -at::log_softmax(logits, 1).gather(1, problem.targets.labels.unsqueeze(1)).squeeze(1);
  const at::Tensor z_losses = at::logsumexp(logits, 1).square() * z_loss;
  const at::Tensor objective = ((losses + z_losses) * problem.targets.loss_mask.to(at::kDouble)).sum() * up;
  const auto grads = torch::autograd::grad({objective}, {exact, weight});
  return {losses.detach(), grads[0], grads[1], z_losses.detach()};
}

// One shard's part of `problem`.
struct Shard {
  Shard(const Problem& problem, const Rows& rows)
      : rows(rows),
        x(problem.x.clone().requires_grad_(true)),
        weight(problem.weight.narrow(0, rows.first, rows.count)) {}

  TokenLosses run(const Problem& problem, std::function<void(at::Tensor&, at::Tensor&)> combine, double z_loss = 0) {
    return linear_cross_entropy(x, weight.param, problem.targets, queue, {rows.first, std::move(combine)},
                                {.z_loss = z_loss});
  }

  Rows rows;
  at::Tensor x;
  TestParam weight;
  tensor::GradQueue queue;
};

// What the shards report.
std::vector<ShardValues> local_values(const Problem& problem, const std::vector<Rows>& shards) {
  std::vector<ShardValues> values;
  for (const Rows& rows : shards) {
    Shard(problem, rows).run(problem, [&](at::Tensor& log_sum_exp, at::Tensor& label_logits) {
      EXPECT_EQ(log_sum_exp.scalar_type(), at::kDouble);
      EXPECT_EQ(label_logits.scalar_type(), at::kDouble);
      values.push_back({log_sum_exp.clone(), label_logits.clone()});
    });
  }
  return values;
}

class VocabularyShardsTest : public testing::TestWithParam<std::tuple<at::ScalarType, CpuIsa>> {
 protected:
  void SetUp() override {
    const CpuIsa isa = std::get<1>(GetParam());
    if (!reference::has(isa)) GTEST_SKIP() << "the machine reaches " << cpu_isa_name(best_cpu_isa());
    force_.emplace(isa);
  }
  at::ScalarType type() const { return std::get<0>(GetParam()); }

 private:
  std::optional<ForceCpuIsa> force_;
};

TEST_P(VocabularyShardsTest, LossAndGradientsOfTheShardsMatchDoubleAutogradOnTheWhole) {
  constexpr double kUp = 0.125;
  for (const Division& division : divisions()) {
    SCOPED_TRACE(division.name());
    const Problem problem(type(), 45, division.vocabulary);
    const std::vector<Rows> shards = divide(division.vocabulary, division.num_shards, division.unit);
    const ShardValues all = over_all(local_values(problem, shards));
    const Oracle want = oracle(problem, kUp);
    const double unit = rounding(type());
    // A logit whose fp32 sum rounds to the neighbour of the exact one's rounding moves the loss by up to one unit.
    const at::Tensor largest =
        at::abs(problem.x.to(at::kDouble)).mm(at::abs(problem.weight.to(at::kDouble)).t()).amax({1});
    const at::Tensor slack = largest * (2 * unit * (type() == at::kFloat ? 16 : 1)) + 1e-6;
    // Gradients of logits are rounded to the compute type before they enter the products.
    const double relative = type() == at::kFloat ? 1e-5 : 6 * unit;
    for (const Rows& rows : shards) {
      Shard shard(problem, rows);
      const TokenLosses losses = shard.run(problem, [&](at::Tensor& log_sum_exp, at::Tensor& label_logits) {
        log_sum_exp.copy_(all.log_sum_exp);
        label_logits = all.label_logits.to(at::kFloat).to(at::kDouble);  // another tensor is taken too
      });
      (losses.sum * kUp).backward();
      expect_within(losses.per_token, want.losses, slack, "losses");
      const at::Tensor weight64 = problem.weight.to(at::kDouble).narrow(0, rows.first, rows.count);
      const at::Tensor dx = want.d_logits.narrow(1, rows.first, rows.count).mm(weight64);
      const at::Tensor dw = want.dw.narrow(0, rows.first, rows.count);
      const auto bound = [&](const at::Tensor& x) {
        return at::full({1}, relative * x.norm().item<double>() + 1e-6, at::kDouble);
      };
      expect_within(shard.x.grad(), dx, bound(dx), "dx");
      expect_within(shard.weight.added(), dw, bound(dw), "dW");
    }
  }
}

TEST_P(VocabularyShardsTest, ZLossAndItsGradientsMatchDoubleAutogradOnTheWhole) {
  constexpr double kUp = 0.125, kZLoss = 0.03;
  for (const int64_t num_shards : {1, 2, 4}) {
    for (const auto mode : {tensor::GradQueue::Mode::kImmediate, tensor::GradQueue::Mode::kDeferred}) {
      SCOPED_TRACE(num_shards);
      const Problem problem(type(), 45, 133);
      const std::vector<Rows> shards = divide(133, num_shards, 1);
      const ShardValues all = over_all(local_values(problem, shards));
      const Oracle want = oracle(problem, kUp, kZLoss), plain = oracle(problem, kUp);
      ASSERT_GT((want.dw - plain.dw).norm().item<double>(), 0.05 * want.dw.norm().item<double>());
      const double relative = type() == at::kFloat ? 1e-6 : 6 * rounding(type());
      const auto near = [&](const at::Tensor& found, const at::Tensor& wanted, const char* what) {
        const double bound = relative * wanted.abs().max().item<double>();
        expect_within(found.reshape({-1}), wanted.reshape({-1}), at::full({1}, bound, at::kDouble), what);
      };
      for (const Rows& rows : shards) {
        Shard shard(problem, rows);
        shard.queue.set_mode(mode);
        const TokenLosses losses = shard.run(
            problem,
            [&](at::Tensor& log_sum_exp, at::Tensor& label_logits) {
              log_sum_exp.copy_(all.log_sum_exp);
              label_logits.copy_(all.label_logits);
            },
            kZLoss);
        at::Tensor objective = (losses.sum + losses.z_sum) * kUp;
        objective.backward();
        shard.queue.drain();
        near(losses.z_per_token, want.z_losses, "z losses");
        near(losses.z_sum, (want.z_losses * problem.targets.loss_mask).sum(), "sum of z losses");
        const at::Tensor weight64 = problem.weight.to(at::kDouble).narrow(0, rows.first, rows.count);
        near(shard.x.grad(), want.d_logits.narrow(1, rows.first, rows.count).mm(weight64), "dx");
        near(shard.weight.added(), want.dw.narrow(0, rows.first, rows.count), "dW");
      }
    }
  }
}

TEST(VocabularyShards, AMaskedTokenHasNoZLossWhateverItsLogits) {
  Problem problem(at::kFloat, 45, 33);
  Shard whole(problem, {0, 33});
  whole.x = whole.x.detach().clone();
  whole.x[2].fill_(INFINITY);  // masked
  whole.x.requires_grad_(true);
  const TokenLosses losses = whole.run(problem, nullptr, 0.5);
  (losses.sum + losses.z_sum).backward();
  EXPECT_TRUE(std::isfinite(losses.z_sum.item<double>()));
  EXPECT_TRUE(at::equal(whole.x.grad()[2], at::zeros({Problem::kHidden})));
}

TEST_P(VocabularyShardsTest, OneShardOfEverythingGivesTheBitsOfTheWhole) {
  const Problem problem(type(), 45, 1031);
  Shard shard(problem, {0, 1031}), whole(problem, {0, 1031});
  shard.run(problem, [](at::Tensor&, at::Tensor&) {}).sum.backward();
  whole.run(problem, nullptr).sum.backward();
  EXPECT_TRUE(at::equal(shard.x.grad(), whole.x.grad()));
  EXPECT_TRUE(at::equal(shard.weight.param.grad, whole.weight.param.grad));
}

TEST(VocabularyShards, CombineIsCalledOnceInAForwardPassWithoutGradientsToo) {
  const Problem problem(at::kBFloat16, 45, 33);
  Shard shard(problem, {0, 0});  // also by a rank that has no rows
  shard.x = problem.x;
  int calls = 0;
  const TokenLosses losses = shard.run(problem, [&](at::Tensor& log_sum_exp, at::Tensor& label_logits) {
    ++calls;
    EXPECT_TRUE(at::equal(log_sum_exp, at::full({45}, -INFINITY, at::kDouble)));
    EXPECT_TRUE(at::equal(label_logits, at::zeros({45}, at::kDouble)));
    log_sum_exp.fill_(3.0);
    label_logits.fill_(1.0);
  });
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(at::equal(losses.per_token, at::full({45}, 2.0)));
}

TEST(VocabularyShards, LossOfLargeLogitsKeepsItsDigits) {
  // Two shards of one row each with logits 3e6 and 3e6 - 1: the loss of the first is log(1 + e^-1).
  const std::vector<ShardValues> values = {
      {at::full({4}, 3e6, at::kDouble), at::full({4}, 3e6, at::kDouble)},
      {at::full({4}, 3e6 - 1, at::kDouble), at::zeros({4}, at::kDouble)},
  };
  const ShardValues all = over_all(values);
  const Problem problem(at::kFloat, 4, 7);
  const TokenLosses losses =
      Shard(problem, {0, 7}).run(problem, [&](at::Tensor& log_sum_exp, at::Tensor& label_logits) {
        log_sum_exp = all.log_sum_exp;
        label_logits = all.label_logits;
      });
  EXPECT_NEAR(losses.per_token[0].item<double>(), std::log1p(std::exp(-1.0)), 1e-7);
}

TEST(VocabularyShards, RowsFromTheMiddleOnWithoutACombinationAndCombinedShapesAreBugs) {
  const Problem problem(at::kFloat, 45, 33);
  Shard shard(problem, {8, 16});
  EXPECT_THROW(shard.run(problem, nullptr), InternalError);
  EXPECT_THROW(
      shard.run(problem, [](at::Tensor& log_sum_exp, at::Tensor&) { log_sum_exp = log_sum_exp.narrow(0, 0, 3); }),
      InternalError);
}

class EmbeddingShardsTest : public testing::TestWithParam<at::ScalarType> {};

TEST_P(EmbeddingShardsTest, RowsAndGradientsOfTheShardsAreThoseOfTheWhole) {
  constexpr int64_t kHidden = 33, kSamples = 3, kLength = 17;
  for (const Division& division : divisions()) {
    SCOPED_TRACE(division.name());
    // Small whole numbers: every sum is exact in every type, so ATen in double has the same values.
    const auto whole_numbers = [&](at::IntArrayRef shape, int64_t seed) {
      at::Generator generator = at::detail::createCPUGenerator(seed);
      return at::randint(-4, 5, shape, generator, at::kLong).to(GetParam());
    };
    const at::Tensor weight = whole_numbers({division.vocabulary, kHidden}, 1);
    const at::Tensor dy = whole_numbers({kLength, kSamples, kHidden}, 2);
    const at::Tensor ids =
        at::arange(kSamples * kLength, at::kLong).mul(5).remainder(division.vocabulary).view({kSamples, kLength});
    const at::Tensor weight64 = weight.to(at::kDouble).requires_grad_(true);
    const at::Tensor want = at::embedding(weight64, ids.t());
    const at::Tensor want_grad = torch::autograd::grad({want}, {weight64}, {dy.to(at::kDouble)})[0];

    at::Tensor sum = at::zeros({kLength, kSamples, kHidden}, at::kDouble);
    for (const Rows& rows : divide(division.vocabulary, division.num_shards, division.unit)) {
      TestParam shard(weight.narrow(0, rows.first, rows.count));
      tensor::GradQueue queue;
      const at::Tensor y = embedding(ids, shard.param, queue, rows.first);
      ASSERT_TRUE(y.requires_grad());  // also of a shard without rows: the layers after it need a graph
      y.backward(dy);
      sum += y.detach().to(at::kDouble);
      EXPECT_TRUE(at::equal(shard.added(), want_grad.narrow(0, rows.first, rows.count))) << "rows from " << rows.first;
    }
    EXPECT_TRUE(at::equal(sum, want.detach()));
  }
}

INSTANTIATE_TEST_SUITE_P(ComputeTypes, EmbeddingShardsTest, testing::Values(at::kFloat, at::kBFloat16, at::kHalf));
INSTANTIATE_TEST_SUITE_P(Bf16, VocabularyShardsTest,
                         testing::Combine(testing::Values(at::kBFloat16),
                                          testing::Values(CpuIsa::kGeneric, CpuIsa::kNeon, CpuIsa::kAvx2,
                                                          CpuIsa::kAvx512, CpuIsa::kNeonBf16, CpuIsa::kAvx512Bf16,
                                                          CpuIsa::kAmx)));
INSTANTIATE_TEST_SUITE_P(Others, VocabularyShardsTest,
                         testing::Combine(testing::Values(at::kFloat, at::kHalf),
                                          testing::Values(CpuIsa::kGeneric, CpuIsa::kNeon, CpuIsa::kAvx2,
                                                          CpuIsa::kAvx512)));

}  // namespace vocabulary_shards_test
}  // namespace espalier::kernels
