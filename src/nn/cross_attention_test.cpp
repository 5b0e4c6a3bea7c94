// Cross-attention against its formula by ATen's autograd in double, on one rank and over two tensor ranks. All of it on
// forked ranks: the parent runs nothing with libtorch.
#include "nn/cross_attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"
#include "dist/local_ranks.h"

namespace espalier::nn {
namespace cross_attention_test {

constexpr int64_t kQueries = 6, kKeys = 35, kRows = 3, kHidden = 40, kOtherHidden = 24, kLayer = 3;
constexpr AttentionShape kShape{.num_heads = 4, .num_groups = 2, .head_size = 8};
constexpr const char* kName = "layers.3.inter_attention";

std::vector<spec::ParamSpec> specs() {
  const int64_t queries = 4 * 8, keys_and_values = 2 * 2 * 8, group = 2 * 8;
  const auto param = [](const std::string& name, std::vector<int64_t> shape, spec::Placement placement) {
    spec::ParamSpec spec;
    spec.name = std::string(kName) + "." + name;
    spec.shape = std::move(shape);
    spec.tensor_placement = std::move(placement);
    spec.init = spec::Init::normal(0.3);
    return spec;
  };
  using spec::Placement;
  return {param("query.weight", {queries, kHidden}, Placement::split(0, {queries}, group)),
          param("query.bias", {queries}, Placement::split(0, {queries}, group)),
          param("key_value.weight", {keys_and_values, kOtherHidden}, Placement::split(0, {keys_and_values}, group)),
          param("key_value.bias", {keys_and_values}, Placement::split(0, {keys_and_values}, group)),
          param("dense.weight", {kHidden, queries}, Placement::split(1, {queries}, group)),
          param("dense.bias", {kHidden}, Placement::replicated())};
}

struct Params {
  explicit Params(const spec::TensorShard& shard) : set(specs(), shard, at::kFloat, true) {
    set.initialize(/*seed=*/5, [](tensor::Param&, const at::Tensor&) {});
    set.zero_grad();
  }
  tensor::ParamSet set;
};

at::Tensor numbers(at::IntArrayRef shape, uint64_t seed) {
  return at::randn(shape, at::detail::createCPUGenerator(seed), at::kFloat);
}

// The other sequence's rows have 35, 20 and 0 positions.
at::Tensor last_keys() {
  return at::tensor({kKeys - 1, int64_t{19}, int64_t{-1}}, at::kInt).view({kRows, 1}).repeat({1, kQueries});
}

ForwardContext make_context() {
  ForwardContext context;
  context.cross_attention.mask = tensor::AttentionContext::Mask::kFull;
  context.cross_attention.last_key = last_keys();
  return context;
}

struct Values {
  at::Tensor x, encoded, residual, d_y;
};
Values values() {
  return {numbers({kQueries, kRows, kHidden}, 1), numbers({kKeys, kRows, kOtherHidden}, 2),
          numbers({kQueries, kRows, kHidden}, 3), numbers({kQueries, kRows, kHidden}, 4)};
}

// [s, b, parts, 8] -> [b, parts, s, 8]
at::Tensor heads_first(const at::Tensor& x, int64_t parts) {
  return x.reshape({x.size(0), x.size(1), parts, 8}).permute({1, 2, 0, 3});
}

struct Reference {
  at::Tensor y;
  std::vector<at::Tensor> gradients;  // of x, encoded, residual, then of the parameters in their order
};
Reference reference() {
  Params params({});
  std::vector<at::Tensor> leaves;
  const auto leaf = [&](const at::Tensor& x) {
    return leaves.emplace_back(x.detach().to(at::kDouble).requires_grad_(true));
  };
  const Values v = values();
  const at::Tensor x = leaf(v.x), encoded = leaf(v.encoded), residual = leaf(v.residual);
  std::vector<at::Tensor> p;
  for (const tensor::Param& param : params.set.params()) p.push_back(leaf(param.value));
  const at::Tensor q = heads_first(at::matmul(x, p[0].t()) + p[1], 4);
  const at::Tensor kv = heads_first(at::matmul(encoded, p[2].t()) + p[3], 4);  // key, value, key, value
  const at::Tensor pairs = kv.view({kRows, 2, 2, kKeys, 8});
  const auto of_heads = [&](int64_t part) { return pairs.select(2, part).repeat_interleave(2, 1); };
  const at::Tensor seen =
      (at::arange(kKeys, at::kInt).view({1, 1, 1, kKeys}) <= last_keys().view({kRows, 1, kQueries, 1})).to(at::kDouble);
  const at::Tensor scores = at::matmul(q, of_heads(0).transpose(2, 3)) / std::sqrt(8.0);
  const at::Tensor probabilities = at::softmax(scores.masked_fill(seen == 0, -1e30), -1) * seen;
  const at::Tensor mixed = at::matmul(probabilities, of_heads(1)).permute({2, 0, 1, 3}).reshape({kQueries, kRows, 32});
  const at::Tensor y = residual + at::matmul(mixed, p[4].t()) + p[5];
  return {y.detach(), torch::autograd::grad({y}, leaves, {v.d_y.to(at::kDouble)})};
}

void check_close(const at::Tensor& found, const at::Tensor& wanted, const std::string& what) {
  if (found.sizes() != wanted.sizes()) throw std::runtime_error(concat(what, ": ", found.sizes(), wanted.sizes()));
  const double error = (found.detach().to(at::kDouble) - wanted).abs().max().item<double>();
  const double bound = 1e-5 * wanted.abs().max().item<double>();
  if (!(error <= bound)) throw std::runtime_error(concat(what, ": off by ", error, ", allowed ", bound));
}

// What this tensor rank holds of the parameter `spec`, of which there is `whole`.
at::Tensor part_of(const at::Tensor& whole, const spec::ParamSpec& spec, const spec::TensorShard& shard) {
  if (spec.tensor_placement.kind == spec::Placement::Kind::kReplicated) return whole;
  const int64_t dim = spec.tensor_placement.dim, count = whole.size(dim) / shard.size;
  return whole.narrow(dim, shard.rank * count, count);
}

std::string check_formula(const dist::Grid& grid, bool sequence_parallel) {
  const Reference wanted = reference();
  Params params(grid.tensor_shard());
  const CrossAttention layer({params.set, grid, sequence_parallel}, kName, kLayer, kShape);
  const auto rows_of = [&](const at::Tensor& x) {  // of this rank between layers
    if (!sequence_parallel) return x;
    return x.chunk(grid.shape.tensor)[grid.position.tensor].contiguous();
  };
  const Values v = values();
  const auto leaf = [&](const at::Tensor& x) { return rows_of(x).clone().requires_grad_(true); };
  const at::Tensor x = leaf(v.x), residual = leaf(v.residual);
  const at::Tensor encoded =
      sequence_parallel ? leaf(at::cat({v.encoded, v.encoded.narrow(0, 0, 1)})) : leaf(v.encoded);
  const at::Tensor y = layer.forward(x, encoded, residual, make_context());
  check_close(y, rows_of(wanted.y), "y");
  torch::autograd::backward({y}, {rows_of(v.d_y)});
  check_close(x.grad(), rows_of(wanted.gradients[0]), "dx");
  const at::Tensor d_encoded =
      sequence_parallel ? rows_of(at::cat({wanted.gradients[1], at::zeros({1, kRows, kOtherHidden}, at::kDouble)}))
                        : wanted.gradients[1];
  check_close(encoded.grad(), d_encoded, "gradient of the other sequence");
  check_close(residual.grad(), rows_of(wanted.gradients[2]), "gradient of the residual");
  for (size_t i = 0; i < params.set.params().size(); ++i) {
    const tensor::Param& param = params.set.params()[i];
    at::Tensor gradient = param.grad;
    // Each rank has added its rows: the reduction of a step sums them.
    if (sequence_parallel && param.spec->name.ends_with("dense.bias")) grid.tensor.all_reduce(gradient);
    check_close(gradient, part_of(wanted.gradients[3 + i], *param.spec, grid.tensor_shard()), param.spec->name);
  }
  return "checked";
}

// One position of the decoder after the other; the other sequence is given to the first pass alone.
std::string check_cache(const dist::Grid& grid) {
  const Reference wanted = reference();
  Params params(grid.tensor_shard());
  const CrossAttention layer({params.set, grid}, kName, kLayer, kShape);
  const Values v = values();
  tensor::KeyValueCache cache;
  cache.layers.resize(kLayer + 1);
  ForwardContext context = make_context();
  context.cross_attention.cache = &cache;
  for (const auto& [begin, count] : {std::pair<int64_t, int64_t>{0, 3}, {3, 1}, {4, 2}}) {
    context.cross_attention.last_key = last_keys().narrow(1, begin, count).contiguous();
    const at::Tensor y = layer.forward(v.x.narrow(0, begin, count).contiguous(), begin == 0 ? v.encoded : at::Tensor(),
                                       v.residual.narrow(0, begin, count).contiguous(), context);
    check_close(y, wanted.y.narrow(0, begin, count), concat("position ", begin));
  }
  return "checked";
}

std::string check_names(const dist::Grid& grid) {
  Params params({});
  CrossAttention layer({params.set, grid}, kName, kLayer, kShape);
  std::string names;
  tensor::ParamVisitor visitor([&](const std::string& name, tensor::Param&) { names += name + " "; });
  visitor.child(kName, layer);
  std::string wanted;
  for (const spec::ParamSpec& spec : specs()) wanted += spec.name + " ";
  return names == wanted ? "checked" : names;
}

std::string check_refused(const dist::Grid& grid) {
  Params params({});
  try {
    const CrossAttention layer({params.set, grid}, kName, kLayer, kShape);
  } catch (const InternalError&) {
    return "refused";
  }
  return "accepted";
}

TEST(CrossAttentionLayer, IsItsFormulaOnOneRankAndOverTwo) {
  for (const int64_t ranks : {1, 2}) {
    const std::vector<std::string> checked(static_cast<size_t>(ranks), "checked");
    EXPECT_EQ(dist::run_ranks({.tensor = ranks}, [](const dist::Grid& grid) { return check_formula(grid, false); }),
              checked);
    EXPECT_EQ(dist::run_ranks({.tensor = ranks}, check_cache), checked);
  }
  EXPECT_EQ(dist::run_ranks({.tensor = 2}, [](const dist::Grid& grid) { return check_formula(grid, true); }),
            (std::vector<std::string>{"checked", "checked"}));
}

TEST(CrossAttentionLayer, ShowsItsParametersByMegatronsNames) {
  EXPECT_EQ(dist::run_ranks({}, check_names), std::vector<std::string>{"checked"});
}

TEST(CrossAttentionLayer, RefusesContextRanks) {
  EXPECT_EQ(dist::run_ranks({.context = 2}, check_refused), (std::vector<std::string>{"refused", "refused"}));
}

}  // namespace cross_attention_test
}  // namespace espalier::nn
