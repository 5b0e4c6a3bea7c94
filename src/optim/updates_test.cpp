// Twenty steps of every optimizer beside a restatement in double: torch's own where it has one, else the paper's.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "optim/optimizer.h"

namespace espalier::optim {
namespace updates_test {

// One parameter of the restatement: its weights and what it keeps, in double.
struct Reference {
  at::Tensor weight;
  std::vector<at::Tensor> kept;
  double weight_decay;
};
struct Step {
  double lr;
  int64_t number;
};
using Restatement = std::function<void(Reference&, const at::Tensor& grad, const Step&)>;

struct OptimizerCase {
  const char* name;
  spec::OptimizerSettings settings;
  int num_kept;
  Restatement step;
};
void PrintTo(const OptimizerCase& value, std::ostream* out) { *out << value.name; }

Restatement torch_sgd(double momentum) {
  return [momentum](Reference& one, const at::Tensor& grad, const Step& step) {
    const std::vector<at::Tensor> buffers = momentum > 0 ? one.kept : std::vector<at::Tensor>{};
    at::_fused_sgd_({one.weight}, {grad}, buffers, one.weight_decay, momentum, step.lr, /*dampening=*/0,
                    /*nesterov=*/false, /*maximize=*/false, /*is_first_step=*/step.number == 1);
  };
}

void torch_adamw(Reference& one, const at::Tensor& grad, const Step& step) {
  at::_fused_adamw_({one.weight}, {grad}, {one.kept[0]}, {one.kept[1]}, {},
                    {at::full({}, static_cast<double>(step.number))}, step.lr, 0.9, 0.95, one.weight_decay, 1e-8,
                    /*amsgrad=*/false, /*maximize=*/false);
}

std::vector<OptimizerCase> cases() {
  return {
      {"adam", {.adam_beta2 = 0.95}, 2, torch_adamw},
      {"sgd", {.optimizer = spec::OptimizerType::kSgd}, 1, torch_sgd(0.9)},
      {"sgd_without_momentum", {.optimizer = spec::OptimizerType::kSgd, .sgd_momentum = 0}, 1, torch_sgd(0)},
  };
}

// A matrix that decays and a vector that does not, of sizes that leave parts of vectors.
std::vector<spec::ParamSpec> two_params() {
  const auto spec_of = [](const char* name, std::vector<int64_t> shape, bool decays) {
    return spec::ParamSpec{.name = name,
                           .shape = std::move(shape),
                           .tensor_placement = {},
                           .depth = 0,
                           .init = {},
                           .weight_decay = decays};
  };
  return {spec_of("weight", {33, 7}, true), spec_of("bias", {33}, false)};
}

double distance(const at::Tensor& actual, const at::Tensor& expected) {
  return ((actual.to(at::kDouble) - expected).norm() / expected.norm()).item<double>();
}

class Updates : public testing::TestWithParam<OptimizerCase> {};

TEST_P(Updates, EqualTheirRestatementForTwentySteps) {
  const OptimizerCase& one = GetParam();
  at::manual_seed(1);
  tensor::ParamSet params(two_params(), {}, at::kFloat, true);
  OptimizerConfig config{.settings = one.settings, .clip_grad = 0};
  config.settings.weight_decay = 0.1;
  Optimizer optimizer(params, config);
  std::vector<Reference> references;
  for (tensor::Param& param : params.params()) {
    const at::Tensor start = at::randn(param.spec->shape);
    optimizer.set_master(param, start);
    Reference reference{start.to(at::kDouble), {}, param.spec->weight_decay ? 0.1 : 0};
    for (int kept = 0; kept < one.num_kept; ++kept) reference.kept.push_back(at::zeros_like(reference.weight));
    references.push_back(std::move(reference));
  }
  for (int64_t step = 1; step <= 20; ++step) {
    const double lr = 0.01 * (1 + 0.1 * static_cast<double>(step % 5));
    for (size_t at = 0; at < references.size(); ++at) {
      tensor::Param& param = params.params()[at];
      const at::Tensor grad = at::randn(param.spec->shape);
      param.grad.copy_(grad);
      one.step(references[at], (grad.to(at::kDouble) * 0.5).contiguous(), {lr, step});
    }
    optimizer.step(lr, 0.5);
    for (size_t at = 0; at < references.size(); ++at)
      ASSERT_LE(distance(params.params()[at].value, references[at].weight), 1e-6) << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(, Updates, testing::ValuesIn(cases()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(UpdateCases, HoldEveryOptimizer) {
  std::set<spec::OptimizerType> tested;
  for (const OptimizerCase& one : cases()) tested.insert(spec::optimizer_kind(one.settings).type);
  EXPECT_EQ(tested.size(), spec::optimizer_kinds().size());
}

}  // namespace updates_test
}  // namespace espalier::optim
