// Sums in canonical order against a recursion over the micro-batches of a step, bit by bit, whoever has which of them.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "dist/local_ranks.h"
#include "dist/reduce.h"
#include "tests/support/split_gradients.h"

namespace espalier::dist {
namespace {
namespace canonical_test {

using namespace test;

constexpr int64_t kMicroBatches = 12;

// What one use of a parameter adds on one rank: no exact fractions, so that the order of sums shows.
at::Tensor source(const tensor::Param& param, const at::IntArrayRef& shape, int64_t micro_batch, int64_t context,
                  int64_t tensor, int64_t use) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  const double shift = 1 + 0.37 * static_cast<double>(micro_batch) + 1.7 * static_cast<double>(context) +
                       0.11 * static_cast<double>(tensor) + 2.3 * static_cast<double>(use) +
                       0.01 * static_cast<double>(param.spec->name.size());
  return (at::arange(count, at::kFloat) + static_cast<float>(shift)).reciprocal().view(shape);
}

// The definition, apart from what implements it.
struct Definition {
  const Grid& grid;
  bool sequence_parallel;

  std::vector<int64_t> uses(const ParamSpec& spec) const {
    if (!spec.is_shared()) return {0};
    if (grid.shape.pipeline == 1) return {1, 0};
    return {spec.is_copy ? 1 : 0};
  }
  bool is_partial(const ParamSpec& spec) const { return is_replicated(spec) && sequence_parallel; }
  int64_t tensor_of(const ParamSpec& spec) const {
    return is_replicated(spec) && !is_partial(spec) ? 0 : grid.position.tensor;
  }
  at::Tensor leaf(const tensor::Param& param, at::IntArrayRef shape, int64_t micro_batch, int64_t context,
                  int64_t tensor, const std::vector<int64_t>& uses) const {
    at::Tensor sum = at::zeros(shape);
    for (const int64_t use : uses) sum += source(param, shape, micro_batch, context, tensor, use);
    return sum;
  }
  // Of micro-batches [begin, end): the left half is the largest power of two that leaves something for the right.
  at::Tensor tree(const tensor::Param& param, at::IntArrayRef shape, int64_t begin, int64_t end, int64_t context,
                  int64_t tensor, const std::vector<int64_t>& uses) const {
    if (end - begin == 1) return leaf(param, shape, begin, context, tensor, uses);
    int64_t half = 1;
    while (2 * half < end - begin) half *= 2;
    return tree(param, shape, begin, begin + half, context, tensor, uses) +
           tree(param, shape, begin + half, end, context, tensor, uses);
  }
  at::Tensor contexts(const tensor::Param& param, at::IntArrayRef shape, int64_t tensor,
                      const std::vector<int64_t>& uses) const {
    at::Tensor sum = tree(param, shape, 0, kMicroBatches, 0, tensor, uses);
    for (int64_t context = 1; context < grid.shape.context; ++context)
      sum = sum + tree(param, shape, 0, kMicroBatches, context, tensor, uses);
    return sum;
  }
  at::Tensor sum(const tensor::Param& param, at::IntArrayRef shape) const {
    const ParamSpec& spec = *param.spec;
    if (spec.is_shared() && grid.shape.pipeline > 1)  // the first stage, then the last
      return contexts(param, shape, tensor_of(spec), {0}) + contexts(param, shape, tensor_of(spec), {1});
    if (!is_partial(spec)) return contexts(param, shape, tensor_of(spec), uses(spec));
    at::Tensor sum = contexts(param, shape, 0, uses(spec));
    for (int64_t tensor = 1; tensor < grid.shape.tensor; ++tensor)
      sum = sum + contexts(param, shape, tensor, uses(spec));
    return sum;
  }
};

void run_step(GradReducer& reducer, tensor::ParamSet& params, const Grid& grid, const Definition& definition,
              bool takes_turns) {
  const int64_t replicas = grid.data.size(), count = kMicroBatches / replicas, replica = grid.data.rank();
  reducer.begin_step(count);
  for (int64_t round = 0; round < count; ++round) {
    const int64_t number = takes_turns ? round * replicas + replica : replica * count + round;
    const auto add = [&](tensor::Param& param, int64_t use) {
      params.grad_queue().push(param, [&, use] {
        param.grad.add_(
            source(param, param.grad.sizes(), number, grid.context.rank(), definition.tensor_of(*param.spec), use));
      });
    };
    if (grid.shape.pipeline == 1) add(params.at("embedding"), 1);
    for (auto param = params.params().rbegin(); param != params.params().rend(); ++param)
      add(*param, param->spec->is_copy ? 1 : 0);
    reducer.end_micro_batch();
  }
  reducer.finish_step();
}

std::string differences(const Grid& grid, ZeroStage zero, bool overlap) {
  const bool sequence_parallel = grid.shape.tensor > 1;
  const Case c{grid.shape,
               {.sequence_parallel = sequence_parallel,
                .zero = zero,
                .bucket_bytes = 512,
                .overlap = overlap,
                .canonical = true}};
  tensor::ParamSet params = param_set(grid, c);
  GradReducer reducer(params, grid, c.options);
  const Definition definition{grid, sequence_parallel};
  const bool takes_turns = zero >= ZeroStage::kGradients;
  for (int step = 0; step < 3; ++step) {
    run_step(reducer, params, grid, definition, takes_turns);
    int64_t num_elements = 0;
    for (const OwnedPiece& piece : reducer.pieces()) {
      const auto shape = spec::local_shape(*piece.param->spec, params.shard());
      const at::Tensor wanted =
          definition.sum(*piece.param, shape).reshape({-1}).narrow(0, piece.begin, piece.end - piece.begin);
      const at::Tensor found = piece.grad.contiguous().view({-1});
      num_elements += found.numel();
      for (int64_t i = 0; i < wanted.numel(); ++i)
        if (std::memcmp(wanted.const_data_ptr<float>() + i, found.const_data_ptr<float>() + i, sizeof(float)) != 0)
          return concat("ZeRO ", static_cast<int>(zero), ", step ", step, ": ", piece.param->spec->name, "[",
                        piece.begin + i, "] is ", found[i].item<float>(), ", not ", wanted[i].item<float>());
    }
    if (num_elements == 0) return "nothing was compared";
  }
  return "";
}

std::string check_shape(const Grid& grid) {
  for (const ZeroStage zero : {ZeroStage::kNone, ZeroStage::kOptimizer, ZeroStage::kGradients, ZeroStage::kParameters})
    for (const bool overlap : {true, false})
      if (zero < ZeroStage::kGradients || grid.shape.pipeline == 1)
        if (const std::string found = differences(grid, zero, overlap); !found.empty()) return found;
  return "equal";
}

TEST(CanonicalSums, HaveTheBitsOfTheirDefinitionInEveryLayout) {
  const std::vector<GridShape> shapes = {{},
                                         {.data = 2},
                                         {.data = 3},
                                         {.data = 4},
                                         {.data = 6},
                                         {.context = 2},
                                         {.context = 2, .data = 2},
                                         {.context = 3, .data = 2},
                                         {.tensor = 2, .data = 2},
                                         {.tensor = 3, .data = 2},
                                         {.data = 2, .pipeline = 2},
                                         {.data = 3, .pipeline = 2}};
  for (const GridShape& shape : shapes) {
    SCOPED_TRACE(spec::to_string(shape));
    EXPECT_EQ(run_ranks(shape, check_shape), std::vector<std::string>(shape.num_ranks(), "equal"));
  }
}

TEST(CanonicalSums, AreTheSameOverGloo) {
  LocalRanksOptions gloo;
  gloo.shared_memory = false;
  for (const GridShape& shape : {GridShape{.data = 3}, GridShape{.tensor = 3, .data = 2}})
    EXPECT_EQ(run_ranks(shape, check_shape, gloo), std::vector<std::string>(shape.num_ranks(), "equal"));
}

// That the order shows in these numbers: plain sums differ between two and four replicas.
TEST(CanonicalSums, DifferFromPlainOnesWhichDependOnTheReplicas) {
  const auto plain = [](const Grid& grid) {
    const Case c{grid.shape, {}};
    tensor::ParamSet params = param_set(grid, c);
    GradReducer reducer(params, grid, c.options);
    run_step(reducer, params, grid, {grid, false}, false);
    std::string bits;
    for (const OwnedPiece& piece : reducer.pieces()) {
      const at::Tensor grad = piece.grad.contiguous();
      bits.append(static_cast<const char*>(grad.const_data_ptr()), static_cast<size_t>(grad.nbytes()));
    }
    return bits;
  };
  EXPECT_NE(run_ranks({.data = 2}, plain)[0], run_ranks({.data = 4}, plain)[0]);
}

// A parameter that some micro-batches do not use, in a section that comes and goes.
TEST(CanonicalSums, OfWhatAMicroBatchDoesNotUseAreThoseOfZeros) {
  const auto sums = [](const Grid& grid) -> std::string {
    const Case c{grid.shape, {.zero = ZeroStage::kGradients, .canonical = true}};
    tensor::ParamSet params = param_set(grid, c);
    GradReducer reducer(params, grid, c.options);
    tensor::Param& param = params.at("layers.1.column");
    reducer.begin_step(3);
    for (int round = 0; round < 3; ++round) {
      if (round != 1) params.grad_queue().push(param, [&] { param.grad.add_(1 + round); });
      reducer.end_micro_batch();
    }
    reducer.finish_step();
    for (const OwnedPiece& piece : reducer.pieces()) {
      const float wanted = piece.param == &param ? 8 : 0;  // 1 + 3 of two replicas
      if (!piece.grad.eq(wanted).all().item<bool>()) return piece.param->spec->name;
    }
    return "equal";
  };
  EXPECT_EQ(run_ranks({.data = 2}, sums), std::vector<std::string>(2, "equal"));
}

TEST(CanonicalSums, MissAMicroBatchThatHasNotEnded) {
  const auto run = [](const Grid& grid) -> std::string {
    const Case c{grid.shape, {.canonical = true}};
    tensor::ParamSet params = param_set(grid, c);
    GradReducer reducer(params, grid, c.options);
    reducer.begin_step(2);
    reducer.end_micro_batch();
    try {
      reducer.finish_step();
    } catch (const std::exception& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_NE(run_ranks({}, run)[0].find("1 micro-batches of 2 have ended"), std::string::npos);
}

}  // namespace canonical_test
}  // namespace
}  // namespace espalier::dist
