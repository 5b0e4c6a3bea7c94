#include "tensor/param_set.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "tensor/rng.h"

namespace espalier::tensor {
namespace param_set_test {

spec::ParamSpec spec_of(const std::string& name, std::vector<int64_t> shape, spec::Init init) {
  spec::ParamSpec spec;
  spec.name = name;
  spec.shape = std::move(shape);
  spec.init = init;
  return spec;
}

std::vector<spec::ParamSpec> specs() {
  return {spec_of("a.weight", {7, 33}, spec::Init::normal(0.02)), spec_of("a.bias", {33}, spec::Init::constant(0)),
          spec_of("norm.weight", {1}, spec::Init::constant(1)),
          spec_of("b.weight", {5, 1, 3}, spec::Init::normal(0.5))};
}

TEST(ParamSet, HoldsEverySpecAlignedAndFindsItByName) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    ParamSet params(specs(), {}, type, /*with_grad=*/true);
    ASSERT_EQ(params.params().size(), 4u);
    for (size_t i = 0; i < 4; ++i) {
      const Param& param = params.params()[i];
      EXPECT_EQ(param.spec, &params.specs()[i]);
      EXPECT_EQ(&params.at(param.spec->name), &param);
      EXPECT_EQ(param.value.sizes(), at::IntArrayRef(param.spec->shape));
      EXPECT_EQ(param.value.scalar_type(), type);
      EXPECT_EQ(param.grad.sizes(), param.value.sizes());
      EXPECT_EQ(param.grad.scalar_type(), at::kFloat);
      EXPECT_TRUE(param.value.is_contiguous() && param.grad.is_contiguous());
      EXPECT_EQ(reinterpret_cast<uintptr_t>(param.value.data_ptr()) % 64, 0u) << param.spec->name;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(param.grad.data_ptr()) % 64, 0u) << param.spec->name;
    }
  }
}

TEST(ParamSet, ParametersDoNotOverlap) {
  ParamSet params(specs(), {}, at::kBFloat16, true);
  for (size_t i = 0; i < 4; ++i) params.params()[i].value.fill_(static_cast<double>(i + 1));
  for (size_t i = 0; i < 4; ++i) params.params()[i].grad.fill_(static_cast<double>(i + 1));
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE((params.params()[i].value == static_cast<double>(i + 1)).all().item<bool>());
    EXPECT_TRUE((params.params()[i].grad == static_cast<double>(i + 1)).all().item<bool>());
  }
  params.zero_grad();
  for (const Param& param : params.params()) EXPECT_EQ(param.grad.abs().sum().item<float>(), 0);
}

TEST(ParamSet, ForgottenGradientsCountAsZeroAndAreLeftAsTheyAre) {
  ParamSet params(specs(), {}, at::kBFloat16, true);
  params.flat_grads().fill_(5);
  params.forget_grads();
  for (Param& param : params.params()) {
    EXPECT_TRUE(param.grad_is_stale);
    EXPECT_EQ(param.grad.min().item<float>(), 5);
  }
  settle_grad(params.params()[1]);
  EXPECT_EQ(params.params()[1].grad.abs().sum().item<float>(), 0);
  EXPECT_EQ(params.params()[2].grad.min().item<float>(), 5);
  params.zero_grad();
  for (const Param& param : params.params()) {
    EXPECT_FALSE(param.grad_is_stale);
    EXPECT_EQ(param.grad.abs().sum().item<float>(), 0);
  }
}

TEST(ParamSet, WithoutGradientsKeepsNone) {
  ParamSet params(specs(), {}, at::kFloat, false);
  for (const Param& param : params.params()) EXPECT_FALSE(param.grad.defined());
}

TEST(ParamSet, ValuesComeFromSeedAndNameAlone) {
  ParamSet params(specs(), {}, at::kBFloat16, true);
  std::map<std::string, at::Tensor> masters;
  params.initialize(42, [&](Param& param, const at::Tensor& fp32) { masters[param.spec->name] = fp32.clone(); });
  ASSERT_EQ(masters.size(), 4u);
  std::vector<float> want(7 * 33);
  fill_normal(philox_key(42, "init/a.weight"), 0.02, 0, 7 * 33, want.data());
  EXPECT_TRUE(at::equal(masters["a.weight"], at::tensor(want).view({7, 33})));
  EXPECT_EQ(masters["a.bias"].abs().sum().item<float>(), 0);
  EXPECT_EQ(masters["norm.weight"].item<float>(), 1);
  for (const Param& param : params.params()) {
    EXPECT_TRUE(at::equal(param.value, masters[param.spec->name].to(at::kBFloat16))) << param.spec->name;
  }

  // Another place in another list changes nothing.
  std::vector<spec::ParamSpec> other = {specs()[3], specs()[0]};
  ParamSet moved(other, {}, at::kBFloat16, true);
  moved.initialize(42, {});
  EXPECT_TRUE(at::equal(moved.at("a.weight").value, params.at("a.weight").value));
  EXPECT_TRUE(at::equal(moved.at("b.weight").value, params.at("b.weight").value));
  moved.initialize(43, {});
  EXPECT_FALSE(at::equal(moved.at("a.weight").value, params.at("a.weight").value));
}

// Of 301 * 97 values within 0.25 the mean is 0 within 5 of its standard deviations, 0.25 / sqrt(3 * count), and the
// variance 0.25^2 / 3 within 2 %. Two ranks have the halves of one.
TEST(ParamSet, UniformValuesFillTheirBounds) {
  const spec::ParamSpec spec{.name = "wide.weight",
                             .shape = {301, 97 * 2},
                             .tensor_placement = spec::Placement::split(1, {97 * 2}, 1),
                             .init = spec::Init::uniform(0.25)};
  const auto values = [&](int64_t rank, int64_t of) {
    ParamSet params({spec}, {.size = of, .rank = rank}, at::kFloat, false);
    params.initialize(7, {});
    return params.at("wide.weight").value.clone();
  };
  const at::Tensor whole = values(0, 1);
  EXPECT_LT(whole.max().item<double>(), 0.25);
  EXPECT_GT(whole.max().item<double>(), 0.2499);
  EXPECT_GE(whole.min().item<double>(), -0.25);
  EXPECT_LT(whole.min().item<double>(), -0.2499);
  EXPECT_NEAR(whole.mean().item<double>(), 0, 5 * 0.25 / std::sqrt(3.0 * 301 * 194));
  EXPECT_NEAR(whole.var().item<double>() / (0.25 * 0.25 / 3), 1, 0.02);
  EXPECT_TRUE(at::equal(values(0, 2), whole.narrow(1, 0, 97)));
  EXPECT_TRUE(at::equal(values(1, 2), whole.narrow(1, 97, 97)));
}

TEST(ParamSet, ShardsHoldTheWholesElements) {
  spec::ParamSpec rows, columns;
  rows = {.name = "rows",
          .shape = {7, 5},
          .tensor_placement = spec::Placement::split(0, {7}),
          .init = spec::Init::normal(1)};
  columns = {.name = "columns",
             .shape = {5, 33},
             .tensor_placement = spec::Placement::split(1, {33}, 3),
             .init = spec::Init::normal(1)};
  ParamSet whole({rows, columns}, {}, at::kFloat, true);
  whole.initialize(9, {});
  for (int64_t size : {2, 3, 4}) {
    std::vector<at::Tensor> row_parts, column_parts;
    for (int64_t rank = 0; rank < size; ++rank) {
      ParamSet part({rows, columns}, {size, rank}, at::kFloat, true);
      part.initialize(9, {});
      row_parts.push_back(part.at("rows").value.clone());
      column_parts.push_back(part.at("columns").value.clone());
    }
    EXPECT_TRUE(at::equal(at::cat(row_parts, 0), whole.at("rows").value)) << size;
    EXPECT_TRUE(at::equal(at::cat(column_parts, 1), whole.at("columns").value)) << size;
  }
}

TEST(ParamSet, MissingAndRepeatedNamesAreBugs) {
  ParamSet params(specs(), {}, at::kFloat, false);
  EXPECT_THROW(params.at("a.weights"), InternalError);
  EXPECT_THROW(ParamSet({specs()[0], specs()[0]}, {}, at::kFloat, false), InternalError);
}

}  // namespace param_set_test
}  // namespace espalier::tensor
