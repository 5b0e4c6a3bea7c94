// One table of relative positions under several layers of attention, beside the formula by ATen's autograd in double:
// in layouts, with recompute and without, and in two parts of a pipeline. All of it on forked ranks.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"
#include "dist/local_ranks.h"
#include "nn/attention.h"
#include "nn/relative_position_bias.h"
#include "pipeline/recompute.h"
#include "spec/relative_positions.h"

namespace espalier::test {
namespace relative_bias_test {

using plan::Recompute;
using spec::Placement;

constexpr int64_t kLayers = 3, kRows = 2, kHidden = 24, kHeads = 8, kGroups = 4, kHeadSize = 4;
constexpr int64_t kChannels = kHeads * kHeadSize, kMembers = kHeads / kGroups;
constexpr spec::RelativePositions kPositions{.num_buckets = 12, .max_distance = 20};
constexpr double kScale = 1;  // T5's
constexpr const char* kTable = "relative_attention_bias";

struct Case {
  int64_t length = 33;
  bool bidirectional = true, sequence_parallel = false;
  Recompute recompute;
  int64_t first_of_second_part = kLayers;  // a part for each stage of a pipeline
};

std::string layer_name(int64_t layer) { return concat("layers.", layer, ".self_attention"); }

std::vector<spec::ParamSpec> specs() {
  std::vector<spec::ParamSpec> list;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape, Placement placement, double deviation) {
    spec::ParamSpec spec;
    spec.name = name;
    spec.shape = std::move(shape);
    spec.tensor_placement = std::move(placement);
    spec.init = spec::Init::normal(deviation);
    list.push_back(std::move(spec));
  };
  const int64_t columns = kGroups * (kMembers + 2) * kHeadSize;
  add(std::string(kTable) + ".weight", {kPositions.num_buckets, kHeads}, Placement::split(1, {kHeads}), 1);
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    add(layer_name(layer) + ".query_key_value.weight", {columns, kHidden},
        Placement::split(0, {columns}, columns / kGroups), 0.15);
    add(layer_name(layer) + ".dense.weight", {kHidden, kChannels}, Placement::split(1, {kChannels}), 0.15);
  }
  return list;
}

struct Params {
  explicit Params(const spec::TensorShard& shard) : set(specs(), shard, at::kFloat, true) {
    set.initialize(/*seed=*/5, [](tensor::Param&, const at::Tensor&) {});
    set.zero_grad();
  }
  tensor::ParamSet set;
};

at::Tensor numbers(int64_t length, uint64_t seed) {
  return at::randn({length, kRows, kHidden}, at::detail::createCPUGenerator(seed), at::kFloat);
}

// ---- the formula

// [s, b, groups, members, d] -> [b, heads, s, d]
at::Tensor heads_first(const at::Tensor& x) {
  return x.expand({-1, -1, kGroups, kMembers, kHeadSize})
      .reshape({x.size(0), kRows, kHeads, kHeadSize})
      .permute({1, 2, 0, 3});
}

at::Tensor layer_by_formula(const at::Tensor& x, const at::Tensor& qkv_weight, const at::Tensor& dense,
                            const at::Tensor& bias, bool bidirectional) {
  const int64_t s = x.size(0);
  const at::Tensor parts = at::matmul(x, qkv_weight.t()).view({s, kRows, kGroups, kMembers + 2, kHeadSize});
  const at::Tensor q = heads_first(parts.narrow(3, 0, kMembers)), k = heads_first(parts.narrow(3, kMembers, 1)),
                   v = heads_first(parts.narrow(3, kMembers + 1, 1));
  at::Tensor scores = at::matmul(q, k.transpose(2, 3)) * kScale + bias;
  if (!bidirectional)
    scores = scores.masked_fill(at::ones({s, s}, at::kBool).triu(1), -std::numeric_limits<double>::infinity());
  const at::Tensor mixed = at::matmul(at::softmax(scores, -1), v).permute({2, 0, 1, 3}).reshape({s, kRows, kChannels});
  return x + at::matmul(mixed, dense.t());
}

struct Reference {
  at::Tensor y;
  std::vector<at::Tensor> gradients;  // of x, then of the parameters in their order
};

Reference reference(const Case& test) {
  Params params({});
  std::vector<at::Tensor> leaves = {numbers(test.length, 1)};
  for (const tensor::Param& param : params.set.params()) leaves.push_back(param.value);
  for (at::Tensor& leaf : leaves) leaf = leaf.detach().to(at::kDouble).requires_grad_(true);
  spec::RelativePositions positions = kPositions;
  positions.bidirectional = test.bidirectional;
  const at::Tensor buckets = at::tensor(spec::relative_buckets(positions, test.length), at::kLong);
  const at::Tensor place = at::arange(test.length);
  const at::Tensor entries = place.view({1, -1}) - place.view({-1, 1}) + test.length - 1;  // [query, key]
  const at::Tensor bias = leaves[1]
                              .index_select(0, buckets.index_select(0, entries.reshape({-1})))
                              .view({test.length, test.length, kHeads})
                              .permute({2, 0, 1});
  at::Tensor x = leaves[0];
  for (size_t layer = 0; layer < kLayers; ++layer)
    x = layer_by_formula(x, leaves[2 + 2 * layer], leaves[3 + 2 * layer], bias, test.bidirectional);
  return {x.detach(), torch::autograd::grad({x}, leaves, {numbers(test.length, 2).to(at::kDouble)})};
}

// ---- the layers

// The layers [begin, end) and the table, as a stage holds them.
class Part {
 public:
  Part(const dist::Grid& grid, const Case& test, int64_t begin, int64_t end)
      : params(grid.tensor_shard()), test_(test) {
    const nn::LayerBuilder builder{params.set, grid, test.sequence_parallel};
    bias_.emplace(builder, kTable, kPositions.max_distance, test.bidirectional);
    const nn::AttentionShape shape{
        .num_heads = kHeads, .num_groups = kGroups, .head_size = kHeadSize, .qkv_bias = false, .dense_bias = false};
    for (int64_t layer = begin; layer < end; ++layer) layers_.emplace_back(builder, layer_name(layer), layer, shape);
  }

  at::Tensor forward(at::Tensor x) const {
    nn::ForwardContext context;
    if (test_.bidirectional) context.attention.mask = tensor::AttentionContext::Mask::kFull;
    context.attention.scale = kScale;
    context.attention.relative_bias = bias_->forward(test_.length);
    const auto layer = [this, context](int64_t number, const at::Tensor& in, const auto&...) {
      return layers_[static_cast<size_t>(number)].forward(in, in, context);
    };
    for (const plan::LayerRange& range : test_.recompute.ranges(static_cast<int64_t>(layers_.size())))
      x = pipeline::run_layers(range, x, layer, dist::single_process().tensor);
    return x;
  }

  Params params;

 private:
  const Case& test_;
  std::optional<nn::RelativePositionBias> bias_;
  std::vector<nn::SelfAttention> layers_;
};

void check_close(const at::Tensor& found, const at::Tensor& wanted, const std::string& what) {
  if (found.sizes() != wanted.sizes()) throw std::runtime_error(concat(what, ": ", found.sizes(), wanted.sizes()));
  const double error = (found.detach().to(at::kDouble) - wanted).abs().max().item<double>();
  // Values are of the size of 1; of a single key the gradient of the scores is 0, a difference of equal numbers.
  const double bound = 1e-5 * std::max(1.0, wanted.abs().max().item<double>());
  if (!(error <= bound)) throw std::runtime_error(concat(what, ": off by ", error, ", allowed ", bound));
}

// What this process has between layers.
at::Tensor rows_of(const at::Tensor& x, const dist::Grid& grid, bool sequence_parallel) {
  const at::Tensor of_context = x.chunk(grid.shape.context)[grid.position.context];
  return sequence_parallel ? of_context.chunk(grid.shape.tensor)[grid.position.tensor] : of_context;
}

at::Tensor part_of(const at::Tensor& whole, const spec::ParamSpec& spec, const spec::TensorShard& shard) {
  return whole.chunk(shard.size, spec.tensor_placement.dim)[shard.rank];
}

std::string check(const dist::Grid& grid, const Case& test) {
  const Reference wanted = reference(test);
  const auto own = [&](const at::Tensor& x) { return rows_of(x, grid, test.sequence_parallel).contiguous(); };
  Part first(grid, test, 0, test.first_of_second_part), second(grid, test, test.first_of_second_part, kLayers);
  const at::Tensor x = own(numbers(test.length, 1)).clone().requires_grad_(true);
  // What a pipeline sends.
  const at::Tensor sent = first.forward(x), received = sent.detach().requires_grad_(true);
  const at::Tensor y = test.first_of_second_part < kLayers ? second.forward(received) : received * 1;
  check_close(y, own(wanted.y), "y");
  torch::autograd::backward({y}, {own(numbers(test.length, 2))});
  torch::autograd::backward({sent}, {received.grad()});
  check_close(x.grad(), own(wanted.gradients[0]), "dx");
  const std::vector<spec::ParamSpec> list = specs();
  for (size_t i = 0; i < list.size(); ++i) {
    // Each part has added its own, as each context rank has: the reduction of a step sums them.
    const auto grad_of = [&](Part& part) { return part.params.set.at(list[i].name).grad; };
    const at::Tensor gradient = grad_of(first) + grad_of(second);
    grid.context.all_reduce(gradient);
    check_close(gradient, part_of(wanted.gradients[1 + i], list[i], grid.tensor_shard()), list[i].name);
  }
  return "checked";
}

void expect_checked(const spec::GridShape& shape, const Case& test) {
  SCOPED_TRACE(concat(spec::to_string(shape), " length ", test.length, test.bidirectional ? " bidirectional" : "",
                      test.sequence_parallel ? " sequence parallel" : "", " recompute ",
                      static_cast<int>(test.recompute.kind), "/", test.recompute.num_layers, " parts at ",
                      test.first_of_second_part));
  const std::vector<std::string> wanted(static_cast<size_t>(shape.tensor * shape.context), "checked");
  EXPECT_EQ(dist::run_ranks(shape, [&](const dist::Grid& grid) { return check(grid, test); }), wanted);
}

constexpr Recompute kRecomputes[] = {{Recompute::Kind::kNone, 1},
                                     {Recompute::Kind::kUniform, 1},
                                     {Recompute::Kind::kUniform, 2},
                                     {Recompute::Kind::kBlock, 1}};

TEST(RelativeBias, OneTableForAllLayersIsItsFormulaWithRecomputeAndWithout) {
  for (const int64_t length : {1, 7, 33, 70})
    for (const bool bidirectional : {false, true})
      for (const Recompute& recompute : kRecomputes)
        expect_checked({}, {.length = length, .bidirectional = bidirectional, .recompute = recompute});
}

TEST(RelativeBias, EachTensorRankHasItsHeads) {
  for (const bool bidirectional : {false, true}) {
    for (const Recompute& recompute : kRecomputes) {
      expect_checked({.tensor = 2}, {.length = 33, .bidirectional = bidirectional, .recompute = recompute});
      expect_checked({.tensor = 2},
                     {.length = 34, .bidirectional = bidirectional, .sequence_parallel = true, .recompute = recompute});
    }
  }
}

TEST(RelativeBias, EachContextRankUsesItsPartOfThem) {
  for (const bool bidirectional : {false, true}) {
    for (const Recompute& recompute : {kRecomputes[0], kRecomputes[1]}) {
      expect_checked({.context = 2}, {.length = 34, .bidirectional = bidirectional, .recompute = recompute});
      expect_checked({.tensor = 2, .context = 2},
                     {.length = 34, .bidirectional = bidirectional, .recompute = recompute});
    }
  }
}

TEST(RelativeBias, EachPartOfAPipelineAddsItsLayers) {
  for (const int64_t first_of_second_part : {1, 2})
    for (const Recompute& recompute : kRecomputes)
      expect_checked({}, {.recompute = recompute, .first_of_second_part = first_of_second_part});
}

}  // namespace relative_bias_test
}  // namespace espalier::test
