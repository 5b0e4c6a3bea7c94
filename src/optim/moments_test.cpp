// Moments in bf16 and in blocks of eight bits: twenty steps beside a plain loop that draws the same random numbers, on
// pieces of any cut as on the whole.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/cpu_isa.h"
#include "optim/optimizer.h"
#include "spec/state_storage.h"
#include "spec/stored_state_reference_test.h"
#include "tensor/rng.h"

namespace espalier::optim {
namespace moments_test {

using spec::StateType;
using Moment = spec::StateTensor::Moment;
constexpr uint64_t kSeed = 77;
constexpr double kDecay = 0.1;

struct Types {
  const char* name;
  StateType first, second;
};
void PrintTo(const Types& value, std::ostream* out) { *out << value.name; }

spec::ParamSpec spec_of(const char* name, std::vector<int64_t> shape, spec::Placement placement = {}) {
  spec::ParamSpec spec{.name = name, .shape = std::move(shape), .tensor_placement = std::move(placement)};
  spec.weight_decay = spec.shape.size() > 1;
  return spec;
}

// One parameter by the formulas of AdamW, element by element; moments in float, as they are computed, the rest in
// double.
struct PlainLoop {
  PlainLoop(const spec::ParamSpec& spec, const at::Tensor& start, Types types)
      : spec(spec),
        types(types),
        weight(start.to(at::kDouble).contiguous()),
        m(static_cast<size_t>(start.numel())),
        v(m.size()) {}

  void step(const at::Tensor& grad, double lr, int64_t number) {
    const float* g = grad.const_data_ptr<float>();
    double* p = weight.mutable_data_ptr<double>();
    for (size_t i = 0; i < m.size(); ++i) {
      m[i] = std::fma(0.9F, m[i], static_cast<float>(1 - 0.9) * g[i]);
      v[i] = std::fma(0.95F, v[i], static_cast<float>(1 - 0.95) * (g[i] * g[i]));
      const double t = static_cast<double>(number);
      const double update = m[i] / (1 - std::pow(0.9, t)) / (std::sqrt(v[i] / (1 - std::pow(0.95, t))) + 1e-8);
      p[i] -= lr * (update + (spec.weight_decay ? kDecay : 0) * p[i]);
    }
    round(m, types.first, true, number, 0);
    round(v, types.second, false, number, 16);
  }
  void round(std::vector<float>& values, StateType type, bool has_sign, int64_t number, int shift) const {
    const tensor::PhiloxKey key = tensor::philox_key(kSeed, ("moments/" + spec.name).c_str());
    std::vector<uint32_t> random;
    for (size_t i = 0; i < values.size(); ++i) {
      const tensor::PhiloxBlock words =
          tensor::philox4x32(key, {{static_cast<uint32_t>(i / 4), 0, static_cast<uint32_t>(number), 0}});
      random.push_back(words.word[i % 4] >> shift & 0xFFFF);
    }
    if (type == StateType::kBf16)
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(spec::reference::rounded_bf16(values[i], random[i]));
    if (type != StateType::kFp8 || spec.shape.size() < 2 || spec.shape.back() % 32 != 0) return;
    for (size_t i = 0; i < values.size(); i += 32) {
      const auto begin = values.begin() + static_cast<std::ptrdiff_t>(i);
      const auto first = random.begin() + static_cast<std::ptrdiff_t>(i);
      const auto block = spec::reference::rounded_block({begin, begin + 32}, has_sign, {first, first + 32});
      std::transform(block.begin(), block.end(), begin, [](double value) { return static_cast<float>(value); });
    }
  }

  const spec::ParamSpec& spec;
  Types types;
  at::Tensor weight;
  std::vector<float> m, v;
};

OptimizerConfig config_of(Types types) {
  OptimizerConfig config{.settings = {.adam_beta2 = 0.95, .weight_decay = kDecay}, .clip_grad = 0, .seed = kSeed};
  config.settings.exp_avg_dtype = types.first, config.settings.exp_avg_sq_dtype = types.second;
  return config;
}

at::Tensor widened(const StatePiece& piece) {
  const int64_t count = piece.end - piece.begin;
  at::Tensor values = at::empty({count}, at::kFloat);
  spec::widen_state(piece.type, piece.moment, piece.values.const_data_ptr(), count, values.mutable_data_ptr<float>());
  return values;
}

class Moments : public testing::TestWithParam<Types> {};

TEST_P(Moments, EqualAPlainLoopForTwentySteps) {
  const std::vector<spec::ParamSpec> specs = {spec_of("matrix", {33, 96}), spec_of("odd", {5, 33}),
                                              spec_of("bias", {71})};
  for (const CpuIsa isa : cpu_isas_of_machine()) {
    const ForceCpuIsa force(isa);
    at::manual_seed(1);
    tensor::ParamSet params(specs, {}, at::kFloat, true);
    Optimizer optimizer(params, config_of(GetParam()));
    std::vector<PlainLoop> loops;
    for (tensor::Param& param : params.params()) {
      const at::Tensor start = at::randn(param.spec->shape);
      optimizer.set_master(param, start);
      loops.emplace_back(*param.spec, start, GetParam());
    }
    for (int64_t step = 1; step <= 20; ++step) {
      for (size_t at = 0; at < loops.size(); ++at) {
        tensor::Param& param = params.params()[at];
        param.grad.copy_(at::randn(param.spec->shape) * std::exp2(-static_cast<double>(step % 3)));
        loops[at].step(param.grad, 0.01, step);
      }
      optimizer.step(0.01, 1);
      for (size_t at = 0; at < loops.size(); ++at) {
        const at::Tensor off = params.params()[at].value.to(at::kDouble) - loops[at].weight;
        ASSERT_LE((off.norm() / loops[at].weight.norm()).item<double>(), 1e-6)
            << "step " << step << " " << specs[at].name << " " << cpu_isa_name(isa);
      }
    }
    optimizer.visit_state([&](const StatePiece& piece) {
      const PlainLoop& loop = loops[params.index_of(*piece.param)];
      const std::vector<float>& expected = piece.kind == "exp_avg" ? loop.m : loop.v;
      EXPECT_TRUE(at::equal(widened(piece), at::tensor(expected))) << piece.param->spec->name << " " << piece.kind;
    });
  }
}

// What two tensor ranks hold of matrices cut by rows and by columns, and of a vector, is what one process has.
TEST_P(Moments, DoNotDependOnTheCut) {
  const std::vector<spec::ParamSpec> specs = {spec_of("by_columns", {7, 192}, spec::Placement::split(1, {192})),
                                              spec_of("by_rows", {14, 32}, spec::Placement::split(0, {6, 8})),
                                              spec_of("vector", {66}, spec::Placement::split(0, {66}))};
  std::map<std::string, at::Tensor> grads, whole;
  at::manual_seed(4);
  for (const spec::ParamSpec& spec : specs) grads[spec.name] = at::randn({20, spec.num_elements()});
  for (const int64_t size : {1, 2}) {
    for (int64_t rank = 0; rank < size; ++rank) {
      const spec::TensorShard shard{size, rank};
      tensor::ParamSet params(specs, shard, at::kBFloat16, true);
      Optimizer optimizer(params, config_of(GetParam()));
      const auto part_of = [&](const spec::ParamSpec& spec, const at::Tensor& flat) {
        std::vector<at::Tensor> parts;
        for (const spec::Extent& extent : spec::local_extents(spec, shard))
          parts.push_back(flat.narrow(0, extent.global_begin, extent.count));
        return at::cat(parts);
      };
      for (int64_t step = 0; step < 20; ++step) {
        for (tensor::Param& param : params.params())
          param.grad.view({-1}).copy_(part_of(*param.spec, grads[param.spec->name][step]));
        optimizer.step(0.01, 1);
      }
      optimizer.visit_state([&](const StatePiece& piece) {
        const std::string name = piece.param->spec->name + piece.kind;
        const at::Tensor found = piece.kind == "master" ? piece.values.view({-1}) : widened(piece);
        if (size == 1)
          whole[name] = found.clone();
        else
          EXPECT_TRUE(at::equal(found, part_of(*piece.param->spec, whole[name]))) << name << " on rank " << rank;
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, Moments,
                         testing::Values(Types{"bf16", StateType::kBf16, StateType::kBf16},
                                         Types{"fp8", StateType::kFp8, StateType::kFp8},
                                         Types{"bf16_and_fp8", StateType::kBf16, StateType::kFp8},
                                         Types{"fp8_and_fp32", StateType::kFp8, StateType::kFp32}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Moments8bit, AreWhatAdam8bitKeeps) {
  const spec::OptimizerKind& kind = spec::optimizer_kind({.optimizer = spec::OptimizerType::kAdam8bit});
  EXPECT_EQ(&kind, &spec::optimizer_kind({.exp_avg_dtype = StateType::kFp8, .exp_avg_sq_dtype = StateType::kFp8}));
  EXPECT_EQ(kind.name(), "adam");
  EXPECT_NEAR(spec::optimizer_bytes(kind, false), 4 + 2 * 33.0 / 32, 1e-12);
}

// Lion, ADOPT, LAMB and Muon keep theirs so too, and train on.
TEST(MomentsOfOthers, AreStoredAsAskedFor) {
  using Type = spec::OptimizerType;
  for (const Type type : {Type::kLion, Type::kAdopt, Type::kLamb, Type::kMuon}) {
    std::vector<spec::ParamSpec> specs = {spec_of("matrix", {33, 64}), spec_of("bias", {33})};
    specs[0].matrices = {{.first = 0, .count = 33}};
    tensor::ParamSet params(specs, {}, at::kFloat, true);
    OptimizerConfig config = config_of({"", StateType::kFp8, StateType::kBf16});
    config.settings.optimizer = type;
    Optimizer optimizer(params, config);
    at::manual_seed(9);
    const at::Tensor target = at::randn({33, 64});
    const auto distance = [&] { return (params.params()[0].value - target).norm().item<double>(); };
    const double before = distance();
    for (int step = 0; step < 30; ++step) {
      for (tensor::Param& param : params.params()) param.grad.zero_();
      params.params()[0].grad.copy_(params.params()[0].value - target);
      optimizer.step(0.05, 1);
    }
    optimizer.visit_state([&](const StatePiece& piece) {
      if (piece.param->spec->name != "matrix") return;
      EXPECT_EQ(piece.values.scalar_type(), piece.moment == Moment::kFirst ? at::kByte : at::kBFloat16) << piece.kind;
    });
    EXPECT_LT(distance(), before) << spec::optimizer_kind(type).name();
  }
}

}  // namespace moments_test
}  // namespace espalier::optim
