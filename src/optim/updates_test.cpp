// Twenty steps of every optimizer against a restatement in double: torch's own where it has one, else the paper's.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
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
  double num_drawn = 0;  // above 0: no update, the gradient is that of labels drawn from the model
};
// The rows of the matrix of 33 rows that belong together: two groups of 7 queries, 4 keys and 4 values, and what is
// left; and the polynomials of the records of modded-nanogpt.
const std::vector<std::vector<int64_t>> kMuonRows = {{0, 1, 2, 3, 4, 5, 6, 15, 16, 17, 18, 19, 20, 21},
                                                     {7, 8, 9, 10, 22, 23, 24, 25},
                                                     {11, 12, 13, 14, 26, 27, 28, 29},
                                                     {30, 31, 32}};
constexpr std::array<std::array<double, 3>, 5> kQuinticOfTheRecords = {{{4.0848, -6.8946, 2.9270},
                                                                        {3.9505, -6.3029, 2.6377},
                                                                        {3.7418, -5.5913, 2.3037},
                                                                        {2.8769, -3.1427, 1.2046},
                                                                        {2.8366, -3.0525, 1.2012}}};
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

// As its authors' code has it, which keeps the mean of squares and multiplies it by the number of labels when it is
// used; here that number is the same every time. It estimates after some updates, this before them, as the paper's
// algorithm 3.
constexpr double kDrawn = 480;
void authors_sophia(Reference& one, const at::Tensor& grad, const Step& step) {
  at::Tensor &mean = one.kept[0], &squares = one.kept[1];
  if (step.num_drawn > 0) {
    squares = 0.99 * squares + 0.01 * grad * grad;
    return;
  }
  one.weight = one.weight * (1 - step.lr * one.weight_decay);
  mean = 0.965 * mean + 0.035 * grad;
  const at::Tensor ratio = (mean.abs() / (0.04 * kDrawn * squares + 1e-15)).clamp_max(1);
  one.weight = one.weight - step.lr * mean.sign() * ratio;
}

// Algorithm 2 of the paper.
void paper_lion(Reference& one, const at::Tensor& grad, const Step& step) {
  const at::Tensor& m = one.kept[0];
  const at::Tensor direction = at::sign(0.95 * m + 0.05 * grad);
  one.weight = one.weight - step.lr * (direction + one.weight_decay * one.weight);
  one.kept[0] = 0.98 * m + 0.02 * grad;
}

// Algorithm 2 of the paper, phi the identity.
void paper_lamb(Reference& one, const at::Tensor& grad, const Step& step) {
  const double t = static_cast<double>(step.number);
  one.kept[0] = 0.9 * one.kept[0] + 0.1 * grad;
  one.kept[1] = 0.999 * one.kept[1] + 0.001 * grad * grad;
  const at::Tensor r = one.kept[0] / (1 - std::pow(0.9, t)) / ((one.kept[1] / (1 - std::pow(0.999, t))).sqrt() + 1e-8);
  const at::Tensor direction = r + one.weight_decay * one.weight;
  const double ratio = one.weight_decay > 0 ? (one.weight.norm() / direction.norm()).item<double>() : 1;
  one.weight = one.weight - step.lr * ratio * direction;
}

// Algorithm 2 of the paper, with the clipping and the decoupled decay of its authors' code.
void paper_adopt(Reference& one, const at::Tensor& grad, const Step& step) {
  if (step.number == 1) {
    one.kept[1] = grad * grad;
    return;
  }
  const double bound = std::pow(static_cast<double>(step.number - 1), 0.25);
  one.weight = one.weight * (1 - step.lr * one.weight_decay);
  const at::Tensor normalized = (grad / one.kept[1].sqrt().clamp_min(1e-6)).clamp(-bound, bound);
  one.kept[0] = 0.9 * one.kept[0] + 0.1 * normalized;
  one.weight = one.weight - step.lr * one.kept[0];
  one.kept[1] = 0.9999 * one.kept[1] + 0.0001 * grad * grad;
}

// As the authors' package has it: y is kept, and x follows from it. kept: y, z, v; and c's sums.
Restatement schedule_free(bool adam) {
  return [adam, largest = std::map<void*, double>(), sums = std::map<void*, double>()](
             Reference& one, const at::Tensor& grad, const Step& step) mutable {
    at::Tensor &y = one.kept[0], &z = one.kept[1], &v = one.kept[2];
    if (step.number == 1) y = one.weight.clone(), z = one.weight.clone();
    largest[&one] = std::max(largest[&one], step.lr);
    const double weight = largest[&one] * largest[&one];
    sums[&one] += weight;
    const double share = weight / sums[&one];
    at::Tensor direction = grad;
    if (adam) {
      v = 0.95 * v + 0.05 * grad * grad;
      direction = grad / ((v / (1 - std::pow(0.95, static_cast<double>(step.number)))).sqrt() + 1e-8);
    }
    direction = direction + one.weight_decay * y;
    y = y + share * (z - y) + step.lr * (0.9 * (1 - share) - 1) * direction;
    z = z - step.lr * direction;
    one.weight = y + (1 - 1 / 0.9) * (z - y);  // the mean
  };
}

// torch.optim.Muon's step (its momentum and decay), for the matrices of rows that belong together, each apart; biases
// by AdamW. The iteration is written in double from its polynomial of the singular values: U f(S) V^T.
Restatement paper_muon(const spec::OptimizerSettings& settings) {
  return [settings](Reference& one, const at::Tensor& grad, const Step& step) {
    if (one.weight.dim() == 1) return torch_adamw(one, grad, step);
    const double momentum = settings.muon_momentum;
    one.kept[0] = momentum * one.kept[0] + (1 - momentum) * grad;
    const at::Tensor direction =
        settings.muon_nesterov ? momentum * one.kept[0] + (1 - momentum) * grad : one.kept[0].clone();
    one.weight = one.weight * (1 - step.lr * one.weight_decay);
    for (const auto& indices : kMuonRows) {
      const at::Tensor rows = at::tensor(indices, at::kLong);
      auto [u, s, v] = at::linalg_svd(direction.index_select(0, rows), /*full_matrices=*/false);
      s = s / s.norm();
      for (int64_t at = 0; at < settings.muon_num_ns_steps; ++at) {
        const bool simple = settings.muon_coefficient_type == spec::MuonCoefficients::kSimple;
        const auto& [a, b, c] = simple ? std::array{3.4445, -4.7750, 2.0315}
                                       : kQuinticOfTheRecords[static_cast<size_t>(std::min<int64_t>(at, 4))];
        s = a * s + b * s.pow(3) + c * s.pow(5);
      }
      const double high = static_cast<double>(indices.size()), wide = static_cast<double>(direction.size(1));
      double scale = std::sqrt(std::max(high, wide));
      if (settings.muon_scale_mode == spec::MuonScale::kShapeScaling) scale = std::max(1.0, std::sqrt(high / wide));
      if (settings.muon_scale_mode == spec::MuonScale::kUnitRmsNorm) scale = std::sqrt(high / wide);
      scale *= settings.muon_extra_scale_factor;
      one.weight.index_add_(0, rows, at::mm(u * s, v) * (-step.lr * scale));
    }
  };
}

std::vector<OptimizerCase> cases() {
  using spec::OptimizerType;
  const spec::OptimizerSettings muon = {.optimizer = OptimizerType::kMuon, .adam_beta2 = 0.95, .muon_momentum = 0.9};
  const spec::OptimizerSettings moonlight = {.optimizer = OptimizerType::kMuon,
                                             .adam_beta2 = 0.95,
                                             .muon_momentum = 0.95,
                                             .muon_nesterov = true,
                                             .muon_extra_scale_factor = 0.2,
                                             .muon_coefficient_type = spec::MuonCoefficients::kSimple};
  const spec::OptimizerSettings jordan = {.optimizer = OptimizerType::kMuon,
                                          .adam_beta2 = 0.95,
                                          .muon_nesterov = true,
                                          .muon_scale_mode = spec::MuonScale::kShapeScaling,
                                          .muon_num_ns_steps = 7};
  return {
      {"adam", {.adam_beta2 = 0.95}, 2, torch_adamw},
      {"sgd", {.optimizer = OptimizerType::kSgd}, 1, torch_sgd(0.9)},
      {"sgd_without_momentum", {.optimizer = OptimizerType::kSgd, .sgd_momentum = 0}, 1, torch_sgd(0)},
      {"lion", {.optimizer = OptimizerType::kLion}, 1, paper_lion},
      {"lamb", {.optimizer = OptimizerType::kLamb}, 2, paper_lamb},
      {"adopt", {.optimizer = OptimizerType::kAdopt, .adam_beta2 = 0.9999, .adam_eps = 1e-6}, 2, paper_adopt},
      {"adamwschedulefree",
       {.optimizer = OptimizerType::kAdamScheduleFree, .adam_beta2 = 0.95},
       3,
       schedule_free(true)},
      {"sgdschedulefree", {.optimizer = OptimizerType::kSgdScheduleFree}, 3, schedule_free(false)},
      {"sophiag", {.optimizer = OptimizerType::kSophiaG, .sophiag_update_interval = 3}, 2, authors_sophia},
      {"muon", muon, 2, paper_muon(muon)},
      {"muon_of_moonlight", moonlight, 2, paper_muon(moonlight)},
      {"muon_of_jordan", jordan, 2, paper_muon(jordan)},
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
  std::vector<spec::ParamSpec> specs = {spec_of("weight", {33, 7}, true), spec_of("bias", {33}, false)};
  specs[0].matrices = {{.first = 0, .count = 7, .stride = 15, .times = 2},
                       {.first = 7, .count = 4, .stride = 15, .times = 2},
                       {.first = 11, .count = 4, .stride = 15, .times = 2},
                       {.first = 30, .count = 3, .stride = 3, .times = 1}};
  return specs;
}

double distance(const at::Tensor& actual, const at::Tensor& expected) {
  return ((actual.to(at::kDouble) - expected).norm() / expected.norm()).item<double>();
}

class Updates : public testing::TestWithParam<OptimizerCase> {};

// Of a model that is `width` times as wide as that of the rate; `rate_of`: by what the rule multiplies it.
void expect_restatement(const OptimizerCase& one, double width,
                        const std::function<double(const spec::ParamSpec&)>& rate_of) {
  at::manual_seed(1);
  std::vector<spec::ParamSpec> specs = two_params();
  for (spec::ParamSpec& spec : specs) spec.width = width;
  tensor::ParamSet params(specs, {}, at::kFloat, true);
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
  int num_estimates = 0;
  for (int64_t step = 1; step <= 20; ++step) {
    if (optimizer.wants_curvature()) {
      for (size_t at = 0; at < references.size(); ++at) {
        tensor::Param& param = params.params()[at];
        const at::Tensor grad = 0.5 * at::randn(param.spec->shape);
        param.grad.copy_(grad);
        one.step(references[at], (grad.to(at::kDouble) * 0.25).contiguous(), {0, step, kDrawn});
      }
      EXPECT_TRUE(optimizer.update_curvature(kDrawn, 0.25));
      ++num_estimates;
    }
    const double lr = 0.01 * (1 + 0.1 * static_cast<double>(step % 5));
    for (size_t at = 0; at < references.size(); ++at) {
      tensor::Param& param = params.params()[at];
      const at::Tensor grad = at::randn(param.spec->shape);
      param.grad.copy_(grad);
      one.step(references[at], (grad.to(at::kDouble) * 0.5).contiguous(), {lr * rate_of(*param.spec), step});
    }
    optimizer.step(lr, 0.5);
    optimizer.use_mean(true);
    for (size_t at = 0; at < references.size(); ++at)
      ASSERT_LE(distance(params.params()[at].value, references[at].weight), 1e-6) << "step " << step;
    optimizer.use_mean(false);
  }
  EXPECT_EQ(num_estimates, optimizer.kind().estimates_curvature ? 7 : 0);
}

TEST_P(Updates, EqualTheirRestatementForTwentySteps) {
  expect_restatement(GetParam(), 1, [](const spec::ParamSpec&) { return 1.0; });
}

// Yang et al. (2022), table 8, of a model that is four times as wide.
TEST_P(Updates, OfWiderModelsHaveRatesByTheRulesOfMup) {
  using Type = spec::OptimizerType;
  const Type type = spec::optimizer_kind(GetParam().settings).type;
  const bool descends = type == Type::kSgd || type == Type::kPlainSgd || type == Type::kSgdScheduleFree;
  const bool has_none = type == Type::kMuon || type == Type::kLamb || type == Type::kSophiaG;
  expect_restatement(GetParam(), 4, [&](const spec::ParamSpec& spec) {
    const bool is_matrix = spec.shape.size() == 2;
    if (has_none) return 1.0;
    if (descends) return is_matrix ? 1.0 : 4.0;
    return is_matrix ? 0.25 : 1.0;
  });
}

// Adam's first step is by lr g / (|g| + epsilon), with a gradient of the size of epsilon.
TEST(UpdatesOfWiderModels, HaveASmallerEpsilonInMatrices) {
  std::vector<spec::ParamSpec> specs = two_params();
  for (spec::ParamSpec& spec : specs) spec.width = 4;
  tensor::ParamSet params(specs, {}, at::kFloat, true);
  Optimizer optimizer(params, {.settings = {.adam_eps = 1e-3, .weight_decay = 0}, .clip_grad = 0});
  for (tensor::Param& param : params.params()) {
    optimizer.set_master(param, at::zeros(param.spec->shape));
    param.grad.fill_(2e-3);
  }
  optimizer.step(0.1, 1);
  EXPECT_NEAR(params.params()[0].value[0][0].item<double>(), -0.1 / 4 * 2e-3 / (2e-3 + 1e-3 / 4), 1e-7);
  EXPECT_NEAR(params.params()[1].value[0].item<double>(), -0.1 * 2e-3 / (2e-3 + 1e-3), 1e-7);
}

// Weights and momentum stay in an estimate; where its gradient is not finite, or no label was drawn, everything does.
TEST(SophiaG, EstimatesMoveNothingElse) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    at::manual_seed(3);
    const std::vector<spec::ParamSpec> specs = two_params();
    tensor::ParamSet params(specs, {}, type, true);
    Optimizer optimizer(params, {.settings = {.optimizer = spec::OptimizerType::kSophiaG}});
    for (tensor::Param& param : params.params()) optimizer.set_master(param, at::randn(param.spec->shape));
    const auto fill = [&](double last) {
      for (tensor::Param& param : params.params()) param.grad.normal_();
      params.params()[1].grad[32] = last;
    };
    const auto state = [&](bool curvature) {
      std::vector<at::Tensor> found;
      for (const tensor::Param& param : params.params()) found.push_back(param.value.clone());
      optimizer.visit_state([&](const StatePiece& piece) {
        if ((piece.kind == "hessian") == curvature || piece.kind != "hessian") found.push_back(piece.values.clone());
      });
      return found;
    };
    const auto equal = [](const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
      return a.size() == b.size() &&
             std::equal(a.begin(), a.end(), b.begin(),
                        [](const at::Tensor& x, const at::Tensor& y) { return at::equal(x, y); });
    };
    fill(1);
    optimizer.step(0.01, 1);
    const std::vector<at::Tensor> rest = state(false), all = state(true);
    for (const double bad : {static_cast<double>(INFINITY), static_cast<double>(NAN)}) {
      fill(bad);
      EXPECT_FALSE(optimizer.update_curvature(100, 1));
      EXPECT_TRUE(equal(state(true), all));
    }
    fill(1);
    EXPECT_FALSE(optimizer.update_curvature(0, 1));
    EXPECT_TRUE(equal(state(true), all));
    EXPECT_TRUE(optimizer.update_curvature(100, 1));
    EXPECT_TRUE(equal(state(false), rest));
    EXPECT_FALSE(equal(state(true), all));
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
