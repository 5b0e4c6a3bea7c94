// As ops_test.cpp, in the sizes that decide how a kernel divides its work: rows that allow accesses of 16 bytes and
// rows that do not, rows of one warp and of several, rows that registers do not hold, parts of columns.
#include "kernels/activation.h"
#include "kernels/dropout.h"
#include "kernels/embedding.h"
#include "kernels/layer_norm.h"
#include "kernels/linear_cross_entropy.h"
#include "kernels/qk_norm.h"
#include "kernels/rms_norm.h"
#include "kernels/rotary.h"
#include "tests/cuda/agreement.h"

namespace espalier::cuda_test {
namespace shapes_test {

constexpr at::ScalarType kAllTypes[] = {at::kFloat, at::kBFloat16, at::kHalf};

struct Shape {
  int64_t rows, columns;
};
constexpr Shape kShapes[] = {{1, 8},     {7, 8},     {33, 33},  {130, 40},  {7, 64},   {130, 64}, {33, 768}, {1, 1600},
                             {130, 768}, {33, 1600}, {7, 1601}, {1100, 24}, {2050, 8}, {3, 7000}, {3, 9001}};

std::string name_of(const char* what, const Shape& shape) {
  return std::string(what) + " " + std::to_string(shape.rows) + " x " + std::to_string(shape.columns);
}

// Rows of the two types of 16 bits are divided alike: unless all cases are taken, they have those by turns.
bool takes(at::ScalarType type, size_t number) {
  return type == at::kFloat || takes_all_cases() || type == (number % 2 == 0 ? at::kBFloat16 : at::kHalf);
}

template <class Run>
void expect_agreement_in_all_shapes(const char* what, const Run& run, double units = 16) {
  for (const auto type : kAllTypes)
    for (size_t number = 0; number < std::size(kShapes); ++number) {
      const Shape& shape = kShapes[number];
      if (!takes(type, number)) continue;
      expect_agreement(
          name_of(what, shape), type, [&](at::Device device) -> Tensors { return run(type, shape, device); }, units);
    }
}

TEST(DeviceShapes, LayerNormAgrees) {
  expect_agreement_in_all_shapes("layer_norm", [](at::ScalarType type, const Shape& shape, at::Device device) {
    const auto [rows, columns] = shape;
    GradQueue queue;
    TestParam weight(random({columns}, type, 1), device), bias(random({columns}, type, 2), device);
    const at::Tensor x = leaf(random({rows, 1, columns}, type, 3), device);
    const at::Tensor y = kernels::layer_norm(x, weight, bias, 1e-5, queue);
    torch::autograd::backward({y}, {random({rows, 1, columns}, type, 4).to(device)});
    return Tensors{y, x.grad(), weight.grad, bias.grad};
  });
}

TEST(DeviceShapes, RmsNormAgrees) {
  expect_agreement_in_all_shapes("rms_norm", [](at::ScalarType type, const Shape& shape, at::Device device) {
    const auto [rows, columns] = shape;
    GradQueue queue;
    TestParam weight(random({columns}, type, 1), device);
    const at::Tensor x = leaf(random({rows, 1, columns}, type, 3), device);
    const at::Tensor y = kernels::rms_norm(x, weight, 1e-6, queue);
    torch::autograd::backward({y}, {random({rows, 1, columns}, type, 4).to(device)});
    return Tensors{y, x.grad(), weight.grad};
  });
}

TEST(DeviceShapes, ActivationsAgree) {
  for (const auto activation : {spec::Activation::kGeluTanh, spec::Activation::kSwiglu})
    expect_agreement_in_all_shapes("activation", [&](at::ScalarType type, const Shape& shape, at::Device device) {
      const auto [rows, columns] = shape;
      GradQueue queue;
      const int64_t width = spec::is_gated(activation) ? 2 * columns : columns;
      TestParam bias(random({width}, type, 1), device);
      const at::Tensor x = leaf(random({rows, 1, width}, type, 2), device);
      const at::Tensor y = kernels::bias_activation(x, &bias, activation, queue);
      torch::autograd::backward({y}, {random({rows, 1, columns}, type, 3).to(device)});
      return Tensors{y, x.grad(), bias.grad};
    });
}

const std::vector<int64_t> kSamples = {5, int64_t{7} << 33, 1}, kSample = {9};
kernels::DropoutSite site() {
  return {.probability = 0.3, .key = {{11, 22}}, .sample_numbers = &kSamples, .first_position = 40};
}

TEST(DeviceShapes, BiasDropoutAddAgrees) {
  expect_agreement_in_all_shapes("bias_dropout_add", [](at::ScalarType type, const Shape& shape, at::Device device) {
    const auto [rows, columns] = shape;
    GradQueue queue;
    TestParam bias(random({columns}, type, 1), device);
    const at::Tensor x = leaf(random({rows, 3, columns}, type, 2), device);
    const at::Tensor residual = leaf(random({rows, 3, columns}, type, 3), device);
    const at::Tensor y = kernels::bias_dropout_add(x, &bias, residual, site(), queue);
    torch::autograd::backward({y}, {random({rows, 3, columns}, type, 4).to(device)});
    return Tensors{y, x.grad(), residual.grad(), bias.grad};
  });
}

TEST(DeviceShapes, DropoutMasksAreTheCpusToTheBit) {
  for (const Shape& shape : kShapes) {
    const auto run = [&](at::Device device) {
      return kernels::dropout(at::ones({shape.rows, 3, shape.columns}, at::TensorOptions().device(device)), site())
          .cpu();
    };
    const at::Tensor expected = run(at::kCPU);
    const UseDevice use;
    EXPECT_TRUE(at::equal(run(device_under_test()), expected)) << name_of("dropout", shape);
  }
}

// Ids of few rows, of one row, and each its own; some are another shard's.
TEST(DeviceShapes, EmbeddingAgrees) {
  for (const int64_t rows : {1, 3, 900})
    expect_agreement_in_all_shapes(
        "embedding",
        [&](at::ScalarType type, const Shape& shape, at::Device device) {
          const int64_t tokens = shape.rows, columns = std::min<int64_t>(shape.columns, 1601);
          GradQueue queue;
          TestParam weight(random({rows, columns}, type, 1), device);
          const at::Tensor ids = (at::arange(2 * tokens, at::kLong) * 7 % (rows + 1)).view({2, tokens});
          const at::Tensor y = kernels::embedding(ids.to(device), weight, queue, /*first_row=*/0);
          torch::autograd::backward({y}, {random({tokens, 2, columns}, type, 2).to(device)});
          return Tensors{y, weight.grad};
        },
        32);  // sums of up to 4100 rows, in another order
}

// One id in every place: runs of sorted tokens that are nothing but a part of it.
TEST(DeviceShapes, TheGradientOfOneRepeatedRowIsTheSumOverTokens) {
  for (const int64_t tokens : {31, 32, 33, 64, 1000, 5000}) {
    const UseDevice use;
    GradQueue queue;
    TestParam weight(random({3, 20}, at::kFloat, 1), device_under_test());
    const at::Tensor ids = at::ones({1, tokens}, at::kLong).to(device_under_test());
    const at::Tensor y = kernels::embedding(ids, weight, queue, 0);
    const at::Tensor dy = at::randint(-8, 9, {tokens, 1, 20}, at::kFloat);  // sums are exact
    torch::autograd::backward({y}, {dy.to(device_under_test())});
    const at::Tensor expected = at::full({3, 20}, 0.25);
    expected[1] += dy.sum(0)[0];
    EXPECT_TRUE(at::equal(weight.grad.cpu(), expected)) << tokens;
  }
}

TEST(DeviceShapes, CrossEntropyAgrees) {
  for (const auto type : {at::kFloat, at::kBFloat16})
    for (const int64_t rows : {8, 33, 1600, 5000})
      expect_agreement(
          "linear_cross_entropy of " + std::to_string(rows), type,
          [&](at::Device device) -> Tensors {
            GradQueue queue;
            TestParam weight(random({rows, 24}, type, 1), device);
            const at::Tensor x = leaf(random({33, 24}, type, 2), device);
            const at::Tensor labels = (at::arange(33, at::kLong) * 37 % rows).to(device);
            const at::Tensor mask = at::ones({33}, at::TensorOptions().device(device));
            mask[5] = 0;
            const kernels::TokenLosses losses = kernels::linear_cross_entropy(x, weight, {labels, mask}, queue);
            torch::autograd::backward({losses.sum}, {});
            return {losses.per_token, losses.sum, x.grad(), weight.grad};
          },
          64);  // of up to 5000 logits, in another order
}

TEST(DeviceShapes, QkNormAgrees) {
  for (const auto type : kAllTypes) {
    size_t number = 0;
    for (const int64_t head_size : {8, 33, 64, 80, 128, 200, 256})
      for (const int64_t rows : {1, 130}) {
        const size_t turn = number++;
        if (!takes(type, turn + turn / 2)) continue;
        expect_agreement(
            name_of("qk_norm", {rows, head_size}), type,
            [&](at::Device device) -> Tensors {
              const kernels::Heads heads{6, 2};
              GradQueue queue;
              TestParam query(random({head_size}, type, 1), device), key(random({head_size}, type, 2), device);
              const at::Tensor qkv = leaf(random({rows, 2, heads.columns(head_size)}, type, 3), device);
              const at::Tensor y = kernels::qk_norm(qkv, query, key, heads, 1e-6, queue);
              torch::autograd::backward({y}, {random(y.sizes(), type, 4).to(device)});
              return {y, qkv.grad(), query.grad, key.grad};
            },
            16);
      }
  }
}

TEST(DeviceShapes, RotaryAgrees) {
  struct Sizes {
    int64_t head, rotary;
  };
  for (const auto type : kAllTypes)
    for (const bool interleaved : {false, true})
      for (const auto [head_size, rotary_size] : {Sizes{64, 64}, {64, 16}, {64, 8}, {80, 20}, {12, 12}, {33, 10}})
        expect_agreement(name_of("rotary", {rotary_size, head_size}), type, [&](at::Device device) -> Tensors {
          const kernels::Heads heads{4, 2};
          const at::Tensor angles = random({50, rotary_size / 2}, at::kFloat, 1);
          const kernels::RotaryTable table{angles.cos().to(device), angles.sin().to(device)};
          const at::Tensor positions = ((at::arange(66, at::kLong) * 5) % 50).view({2, 33}).to(device);
          const at::Tensor qkv = leaf(random({33, 2, heads.columns(head_size)}, type, 2), device);
          const at::Tensor y = kernels::rotary(qkv, table, positions, heads, head_size, interleaved);
          torch::autograd::backward({y}, {random(y.sizes(), type, 3).to(device)});
          return {y, qkv.grad()};
        });
}

// The same values one element beside where 16 bytes begin.
at::Tensor moved_by_one(const at::Tensor& values) {
  const at::Tensor storage = at::zeros({values.numel() + 1}, values.options());
  return storage.narrow(0, 1, values.numel()).view(values.sizes()).copy_(values);
}

TEST(DeviceShapes, ViewsThatAreNotAlignedGiveTheSameBits) {
  const UseDevice use;
  const at::Device device = device_under_test();
  for (const auto type : kAllTypes)
    for (const Shape& shape : {Shape{130, 64}, {33, 768}, {33, 1600}}) {
      const auto [rows, columns] = shape;
      const auto run = [&](bool moved) -> Tensors {
        const auto place = [&](const at::Tensor& x) {
          return (moved ? moved_by_one(x.to(device)) : x.to(device)).detach().requires_grad_();
        };
        GradQueue queue;
        TestParam weight(random({columns}, type, 1), device), bias(random({columns}, type, 2), device);
        const at::Tensor x = place(random({rows, 1, columns}, type, 3)), dy = random({rows, 1, columns}, type, 4);
        const at::Tensor up = (moved ? moved_by_one(dy.to(device)) : dy.to(device));
        const at::Tensor normalized = kernels::layer_norm(x, weight, bias, 1e-5, queue);
        const at::Tensor rms = kernels::rms_norm(x, weight, 1e-6, queue);
        const at::Tensor active = kernels::bias_activation(x, &bias, spec::Activation::kGeluTanh, queue);
        kernels::DropoutSite of_one = site();
        of_one.sample_numbers = &kSample;
        const at::Tensor dropped = kernels::bias_dropout_add(x, &bias, x, of_one, queue);
        torch::autograd::backward({normalized, rms, active, dropped}, {up, up, up, up});
        return {normalized, rms, active, dropped, x.grad(), weight.grad, bias.grad};
      };
      const Tensors aligned = run(false), moved = run(true);
      for (size_t i = 0; i < aligned.size(); ++i)
        EXPECT_TRUE(at::equal(aligned[i], moved[i])) << name_of("", shape) << " " << type << " result " << i;
    }
}

}  // namespace shapes_test
}  // namespace espalier::cuda_test
