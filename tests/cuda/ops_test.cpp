// Every op on the device under test against the CPU's kernels, which their own tests compare with formulas: results and
// gradients, fp32 and bf16, awkward sizes. Random masks and Adam must be equal to the bit.
#include "base/error.h"
#include "kernels/device_ops.h"
#include "kernels/draw_labels.h"
#include "kernels/dropout.h"
#include "kernels/embedding.h"
#include "kernels/layer_norm.h"
#include "kernels/linear.h"
#include "kernels/linear_cross_entropy.h"
#include "kernels/optimizer_update.h"
#include "tests/cuda/agreement.h"

namespace espalier::cuda_test {
namespace ops_test {

TEST(DeviceOps, LinearAgrees) {
  for (const auto type : kTypes)
    for (const int64_t tokens : kSizes)
      expect_agreement("linear", type, [&](at::Device device) -> Tensors {
        GradQueue queue;
        TestParam weight(random({40, 24}, type, 1), device), bias(random({40}, type, 2), device);
        const at::Tensor x = leaf(random({tokens, 1, 24}, type, 3), device);
        const at::Tensor y = kernels::linear(x, weight, &bias, queue);
        torch::autograd::backward({y}, {random({tokens, 1, 40}, type, 4).to(device)});
        return {y, x.grad(), weight.grad, bias.grad};
      });
}

// As logits of a model in use are made.
TEST(DeviceOps, ProductsAsFp32AreNotRoundedToTheOperandsType) {
  for (const auto type : kTypes) {
    const at::Tensor x = random({33, 24}, type, 1), weight = random({40, 24}, type, 2);
    const at::Tensor expected = at::mm(x.to(at::kDouble), weight.to(at::kDouble).t());
    const UseDevice use;
    const at::Device device = device_under_test();
    const at::Tensor found = kernels::device_ops(device)->matmul_to_fp32(x.to(device), weight.to(device)).cpu();
    EXPECT_EQ(found.scalar_type(), at::kFloat);
    EXPECT_TRUE(at::allclose(found.to(at::kDouble), expected, 1e-5, 1e-5)) << type;
  }
}

TEST(DeviceOps, LayerNormAgrees) {
  for (const auto type : kTypes)
    for (const int64_t columns : {7, 33, 300})
      expect_agreement(
          "layer_norm", type,
          [&](at::Device device) -> Tensors {
            GradQueue queue;
            TestParam weight(random({columns}, type, 1), device), bias(random({columns}, type, 2), device);
            const at::Tensor x = leaf(random({70, 2, columns}, type, 3) + 3, device);
            const at::Tensor y = kernels::layer_norm(x, weight, bias, 1e-5, queue);
            torch::autograd::backward({y}, {random({70, 2, columns}, type, 4).to(device)});
            return {y, x.grad(), weight.grad, bias.grad};
          },
          16);
}

const std::vector<int64_t> kSamples = {5, int64_t{7} << 33};
kernels::DropoutSite site() {
  return {.probability = 0.3, .key = {{11, 22}}, .sample_numbers = &kSamples, .first_position = 40};
}

TEST(DeviceOps, DropoutMasksAreTheCpusToTheBit) {
  const auto run = [](at::Device device) {
    return kernels::dropout(at::ones({9, 2, 133}, at::TensorOptions().device(device)), site()).cpu();
  };
  const at::Tensor expected = run(at::kCPU);
  const UseDevice use;
  const at::Tensor actual = run(device_under_test());
  EXPECT_TRUE(at::equal(actual, expected));
  const double dropped = (actual == 0).to(at::kDouble).mean().item<double>();
  EXPECT_NEAR(dropped, 0.3, 0.03) << "of 2394 elements";
}

TEST(DeviceOps, DrawnLabelsAreTheCpus) {
  for (const int64_t rows : {1, 33, 333}) {
    const auto run = [&](at::Device device) {
      return kernels::draw_labels(random({9, 2, rows}, at::kFloat, 1).to(device), /*first_row=*/71,
                                  {.key = {{11, 22}}, .sample_numbers = &kSamples, .first_position = 40});
    };
    const kernels::DrawnLabels expected = run(at::kCPU);
    const UseDevice use;
    const kernels::DrawnLabels actual = run(device_under_test());
    EXPECT_TRUE(at::equal(actual.rows.cpu(), expected.rows)) << rows;
    EXPECT_TRUE(at::allclose(actual.scores.cpu(), expected.scores, 1e-12)) << rows;
  }
}

TEST(DeviceOps, BiasDropoutAddAgrees) {
  for (const auto type : kTypes)
    for (const double probability : {0.0, 0.3})
      expect_agreement("bias_dropout_add", type, [&](at::Device device) -> Tensors {
        GradQueue queue;
        TestParam bias(random({33}, type, 1), device);
        kernels::DropoutSite at_site = site();
        at_site.probability = probability;
        const at::Tensor x = leaf(random({7, 2, 33}, type, 2), device),
                         residual = leaf(random({7, 2, 33}, type, 3), device);
        const at::Tensor y = kernels::bias_dropout_add(x, &bias, residual, at_site, queue);
        torch::autograd::backward({y}, {random({7, 2, 33}, type, 4).to(device)});
        return {y, x.grad(), residual.grad(), bias.grad};
      });
}

TEST(DeviceOps, EmbeddingOfAShardAgrees) {
  const at::Tensor ids = at::tensor({3, 9, 3, 0, 12, 3, 10, 3}, at::kLong).view({2, 4});  // 0 and 12: another shard's
  for (const auto type : kTypes)
    expect_agreement("embedding", type, [&](at::Device device) -> Tensors {
      GradQueue queue;
      TestParam weight(random({10, 33}, type, 1), device);
      const at::Tensor y = kernels::embedding(ids.to(device), weight, queue, /*first_row=*/2);
      torch::autograd::backward({y}, {random({4, 2, 33}, type, 2).to(device)});
      return {y, weight.grad};
    });
}

TEST(DeviceOps, LinearCrossEntropyAgrees) {
  for (const auto type : kTypes)
    for (const int64_t tokens : kSizes)
      expect_agreement(
          "linear_cross_entropy", type,
          [&](at::Device device) -> Tensors {
            GradQueue queue;
            TestParam weight(random({300, 24}, type, 1), device);
            const at::Tensor x = leaf(random({tokens, 24}, type, 2), device);
            const at::Tensor labels = (at::arange(tokens, at::kLong) * 37 % 300).to(device);
            const at::Tensor mask = at::ones({tokens}, at::TensorOptions().device(device));
            if (tokens > 1) mask[1] = 0;
            const kernels::TokenLosses losses = kernels::linear_cross_entropy(x, weight, {labels, mask}, queue);
            torch::autograd::backward({losses.sum}, {});
            return {losses.per_token, losses.sum, x.grad(), weight.grad};
          },
          16);
}

TEST(DeviceOps, CrossEntropyWithABiasAZLossAndACapAgrees) {
  for (const auto type : kTypes)
    for (const double soft_cap : {0.0, 4.0})
      for (const int64_t tokens : kSizes)
        expect_agreement(
            espalier::concat("linear_cross_entropy with a bias, a z-loss, cap ", soft_cap), type,
            [&](at::Device device) -> Tensors {
              GradQueue queue;
              // Logits near 1: where they are near 20, their own rounding in fp32 is in every probability with more
              // than the roundings that agreement allows.
              TestParam weight(random({300, 24}, type, 1) * 0.25, device), bias(random({300}, type, 5), device);
              const at::Tensor x = leaf(random({tokens, 24}, type, 2), device);
              const at::Tensor labels = (at::arange(tokens, at::kLong) * 37 % 300).to(device);
              const at::Tensor mask = at::ones({tokens}, at::TensorOptions().device(device));
              const kernels::TokenLosses losses = kernels::linear_cross_entropy(
                  x, weight, {labels, mask}, queue, {}, {.bias = &bias, .z_loss = 0.01, .soft_cap = soft_cap});
              torch::autograd::backward({losses.sum, losses.z_sum}, {});
              return {losses.per_token, losses.sum, losses.z_per_token, losses.z_sum, x.grad(), weight.grad, bias.grad};
            },
            16);
}

// fp32 or bf16 values of which the first is `offset` elements from where an allocation begins.
at::Tensor placed(const at::Tensor& values, int64_t offset, at::Device device) {
  const at::Tensor memory = at::zeros({values.numel() + offset}, values.options().device(device));
  return memory.narrow(0, offset, values.numel()).copy_(values);
}

// One tensor, or many of which some are empty, end within a block, or begin where accesses of 16 bytes may not.
TEST(DeviceOps, UpdatesOfOptimizersAreTheCpusToTheBit) {
  struct Sizes {
    int64_t count, offset;
  };
  const std::vector<Sizes> list = {{1000, 0}, {7, 0}, {0, 0}, {1, 0}, {8193, 0}, {33, 1}, {64, 4}, {9000, 3}, {0, 0}};
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const spec::OptimizerKind& kind : spec::optimizer_kinds()) {
      const auto run = [&](at::Device device) -> Tensors {
        std::vector<kernels::OptimizerUpdate> updates;
        for (size_t i = 0; i < list.size(); ++i) {
          const auto [count, offset] = list[i];
          const int seed = 10 * static_cast<int>(i);
          kernels::OptimizerTensors tensors{.master = placed(random({count}, at::kFloat, seed + 1), offset, device),
                                            .states = {},
                                            .grad = placed(random({count}, at::kFloat, seed + 2), offset, device),
                                            .value = {}};
          tensors.value =
              type == at::kFloat && !kind.averages ? tensors.master : placed(at::zeros({count}, type), offset, device);
          for (size_t state = 0; state < kind.states.size(); ++state)
            tensors.states.push_back(
                placed(random({count}, at::kFloat, seed + 3 + static_cast<int>(state)).abs(), offset, device));
          updates.push_back({tensors, kind.constants({}, {.lr = 1e-3 * static_cast<double>(i + 1),
                                                          .weight_decay = 0.1,
                                                          .number = 3,
                                                          .grad_scale = 0.5})});
        }
        kernels::optimizer_update(kind, updates);
        Tensors results;
        for (const kernels::OptimizerUpdate& update : updates) {
          for (const at::Tensor* tensor : {&update.tensors.master, &update.tensors.grad, &update.tensors.value})
            results.push_back(tensor->cpu());
          for (const at::Tensor& state : update.tensors.states) results.push_back(state.cpu());
        }
        return results;
      };
      const Tensors expected = run(at::kCPU);
      const UseDevice use;
      const Tensors actual = run(device_under_test());
      for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_TRUE(at::equal(actual[i], expected[i])) << kind.name() << " " << type << " " << i;
    }
  }
}

TEST(DeviceOps, UpdatesThatStoreMomentsInFewerBitsAreTheCpusToTheBit) {
  const auto is_moment = [](const spec::StateTensor& state) {
    return state.moment != spec::StateTensor::Moment::kNone;
  };
  for (const at::ScalarType stored : {at::kBFloat16, at::kByte})
    for (const spec::OptimizerKind& kind : spec::optimizer_kinds()) {
      if (kind.states.empty() || !std::all_of(kind.states.begin(), kind.states.end(), is_moment)) continue;
      const auto run = [&](at::Device device) -> Tensors {
        const kernels::StateRounding rounding{
            .key = {{3, 4}},
            .step = (int64_t{1} << 33) + 7,
            .runs = kernels::runs_tensor({{64, 0, 96}, {int64_t{1} << 35, 96, 864}}, device)};
        kernels::OptimizerTensors tensors{.master = random({960}, at::kFloat, 1).to(device),
                                          .states = {},
                                          .grad = {},
                                          .value = {},
                                          .rounding = &rounding};
        tensors.value = at::zeros({960}, tensors.master.options().dtype(at::kBFloat16));
        for (size_t state = 0; state < kind.states.size(); ++state)
          tensors.states.push_back(
              at::zeros({stored == at::kByte ? 960 / 32 * 33 : 960}, tensors.master.options().dtype(stored)));
        for (int step = 0; step < 3; ++step) {
          tensors.grad = random({960}, at::kFloat, 2 + step).to(device);
          // Of two tensors: the same twice.
          kernels::OptimizerTensors copy = tensors;
          copy.master = tensors.master.clone(), copy.grad = tensors.grad.clone(), copy.value = tensors.value.clone();
          for (at::Tensor& state : copy.states) state = state.clone();
          const spec::OptimizerConstants constants =
              kind.constants({}, {.lr = 1e-3, .weight_decay = 0.1, .number = 3 + step});
          kernels::optimizer_update(kind, {{copy, constants}, {tensors, constants}});
          EXPECT_TRUE(at::equal(copy.master, tensors.master)) << kind.name();
        }
        Tensors results = {tensors.master.cpu(), tensors.grad.cpu(), tensors.value.cpu()};
        for (const at::Tensor& state : tensors.states) results.push_back(state.cpu());
        return results;
      };
      const Tensors expected = run(at::kCPU);
      const UseDevice use;
      const Tensors actual = run(device_under_test());
      for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_TRUE(at::equal(actual[i], expected[i])) << kind.name() << " " << stored << " " << i;
    }
}

TEST(DeviceOps, MeasuresOfGradientsAreRight) {
  struct Sizes {
    int64_t count, offset;
  };
  std::vector<kernels::Measure> of;
  std::vector<kernels::Measured> expected;
  const UseDevice use;
  for (const auto [count, offset] : std::vector<Sizes>{{100000, 0}, {1, 0}, {0, 0}, {8192, 0}, {33, 3}, {20001, 1}}) {
    const at::Tensor values = at::arange(count, at::kFloat) % 7;  // the squares of which are exact
    of.push_back({placed(values, offset, device_under_test()), true, true, true});
    expected.push_back({(values.to(at::kDouble) * values.to(at::kDouble)).sum().item<double>(), (count + 6) / 7, 0});
  }
  const auto expect = [&] {
    const std::vector<kernels::Measured> measured = kernels::measure(of);
    ASSERT_EQ(measured.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      if (expected[i].num_not_finite == 0) {
        EXPECT_EQ(measured[i].sum_of_squares, expected[i].sum_of_squares) << i;
      }
      EXPECT_EQ(measured[i].num_zeros, expected[i].num_zeros) << i;
      EXPECT_EQ(measured[i].num_not_finite, expected[i].num_not_finite) << i;
    }
  };
  expect();
  of[0].values[77777] = INFINITY, of[0].values[3] = -INFINITY;
  of[5].values[20000] = NAN;
  expected[0].num_not_finite = 2, expected[5].num_not_finite = 1;
  if (20000 % 7 == 0) --expected[5].num_zeros;
  if (77777 % 7 == 0) --expected[0].num_zeros;
  expect();
}

}  // namespace ops_test
}  // namespace espalier::cuda_test
