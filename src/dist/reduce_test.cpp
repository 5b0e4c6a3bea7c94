// Gradients summed over forked ranks against a plain loop over the same contributions.
#include "dist/reduce.h"

#include <ATen/ATen.h>
#include <c10/util/BFloat16.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "base/error.h"
#include "dist/local_ranks.h"
#include "tensor/cpu_allocator.h"
#include "tests/support/split_gradients.h"

namespace espalier::dist {
namespace {
namespace reduce_test {

using namespace test;

void run_step(GradReducer& reducer, tensor::ParamSet& params, const Grid& grid, const Case& c, int64_t step) {
  reducer.begin_step(c.num_micro_batches);
  run_backward(params, grid, c, step);
  reducer.finish_step();
}

std::string check_case(const Grid& grid, const Case& c) {
  tensor::ParamSet params = param_set(grid, c);
  GradReducer reducer(params, grid, c.options);
  int64_t count = 0;
  for (int64_t step = 0; step < 3; ++step) {
    run_step(reducer, params, grid, c, step);
    count = check_pieces(reducer, params, c, step);
  }
  return std::to_string(count);
}

// Every ZeRO stage that the shape allows, with and without overlap.
std::string check_shape(const Grid& grid) {
  for (const ZeroStage zero : {ZeroStage::kNone, ZeroStage::kOptimizer, ZeroStage::kGradients, ZeroStage::kParameters})
    for (const bool overlap : {true, false})
      if (zero < ZeroStage::kGradients || grid.shape.pipeline == 1)
        check_case(
            grid,
            {grid.shape,
             {.sequence_parallel = grid.shape.tensor > 1, .zero = zero, .bucket_bytes = 512, .overlap = overlap}});
  return "checked";
}

TEST(GradReducer, SumsAreTheLoopOverRanksInEveryLayout) {
  const std::vector<GridShape> shapes = {
      {},
      {.data = 2},
      {.data = 3},
      {.context = 2, .data = 2},
      {.tensor = 2},
      {.tensor = 2, .data = 2},
      {.pipeline = 2},
      {.data = 2, .pipeline = 2},
      {.tensor = 2, .pipeline = 2},
      {.pipeline = 3},
  };
  for (const GridShape& shape : shapes) {
    SCOPED_TRACE(spec::to_string(shape));
    EXPECT_EQ(run_ranks(shape, check_shape), std::vector<std::string>(shape.num_ranks(), "checked"));
  }
}

// What is added here is not an exact fraction: sums depend on the order of addition.
void add_thirds(tensor::ParamSet& params, const Grid& grid, int64_t num_micro_batches) {
  for (int64_t micro_batch = 0; micro_batch < num_micro_batches; ++micro_batch)
    for (auto param = params.params().rbegin(); param != params.params().rend(); ++param)
      params.grad_queue().push(*param, [&, param] {
        const int64_t count = param->grad.numel();
        const float scale = 1.0f + 1.7f * static_cast<float>(grid.gradient.rank()) + static_cast<float>(micro_batch);
        param->grad.add_((at::arange(count, at::kFloat) + scale).reciprocal().view(param->grad.sizes()));
      });
}

// The bits of what the rank owns after three steps.
std::string owned_bits(const Grid& grid, const Case& c) {
  tensor::ParamSet params = param_set(grid, c);
  GradReducer reducer(params, grid, c.options);
  std::string bits;
  for (int64_t step = 0; step < 3; ++step) {
    reducer.begin_step(c.num_micro_batches);
    add_thirds(params, grid, c.num_micro_batches);
    reducer.finish_step();
    for (const OwnedPiece& piece : reducer.pieces()) {
      const at::Tensor grad = piece.grad.contiguous();
      bits.append(static_cast<const char*>(grad.const_data_ptr()), static_cast<size_t>(grad.nbytes()));
    }
  }
  return bits;
}

TEST(GradReducer, OverlapChangesNoBit) {
  const auto compare = [](const Grid& grid) {
    for (const ZeroStage zero : {ZeroStage::kNone, ZeroStage::kOptimizer, ZeroStage::kGradients})
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
        Case c{grid.shape, {.type = type, .zero = zero, .bucket_bytes = 512}};
        const std::string overlapped = owned_bits(grid, c);
        c.options.overlap = false;
        if (overlapped != owned_bits(grid, c)) return concat("different at ZeRO ", static_cast<int>(zero));
      }
    return std::string("same");
  };
  EXPECT_EQ(run_ranks({.data = 3}, compare), std::vector<std::string>(3, "same"));
}

// The copies of the tied embedding, and what is replicated over tensor ranks, even where a sum over three replicas
// depends on the order of addition.
TEST(GradReducer, EqualThingsStayEqualToTheLastBit) {
  const auto bits_of = [](const Grid& grid, bool tied) {
    const Case c{grid.shape, {.zero = ZeroStage::kOptimizer, .bucket_bytes = 512}};
    tensor::ParamSet params = param_set(grid, c);
    GradReducer reducer(params, grid, c.options);
    reducer.begin_step(1);
    add_thirds(params, grid, 1);
    reducer.finish_step();
    std::string bits;
    for (const OwnedPiece& piece : reducer.pieces()) {
      if (tied ? !piece.param->spec->is_shared() : !is_replicated(*piece.param->spec)) continue;
      const at::Tensor grad = piece.grad.contiguous();
      bits.append(static_cast<const char*>(grad.const_data_ptr()), static_cast<size_t>(grad.nbytes()));
    }
    return bits;
  };
  const auto stages = run_ranks({.data = 3, .pipeline = 2}, [&](const Grid& grid) { return bits_of(grid, true); });
  for (size_t rank = 0; rank < 3; ++rank) EXPECT_EQ(stages[rank], stages[rank + 3]);
  const auto tensors = run_ranks({.tensor = 2, .data = 3}, [&](const Grid& grid) { return bits_of(grid, false); });
  for (size_t rank = 0; rank < 6; rank += 2) EXPECT_EQ(tensors[rank], tensors[rank + 1]);
}

TEST(GradReducer, Bf16GradientsAreRoundedSummedAndWidened) {
  const auto check = [](const Grid& grid) {
    for (const ZeroStage zero : {ZeroStage::kNone, ZeroStage::kOptimizer, ZeroStage::kGradients}) {
      const Case c{grid.shape, {.type = at::kBFloat16, .zero = zero}, 1};
      tensor::ParamSet params = param_set(grid, c);
      GradReducer reducer(params, grid, c.options);
      reducer.begin_step(1);
      add_thirds(params, grid, 1);
      reducer.finish_step();
      for (const OwnedPiece& piece : reducer.pieces())
        for (int64_t i = piece.begin; i < piece.end; ++i) {
          const float index = static_cast<float>(i);
          const c10::BFloat16 sum = c10::BFloat16(1.0f / (index + 1.0f)) + c10::BFloat16(1.0f / (index + 2.7f));
          const float actual = piece.grad.reshape({-1})[i - piece.begin].item<float>();
          if (actual != static_cast<float>(sum))
            return concat(piece.param->spec->name, "[", i, "] ", actual, " not ", static_cast<float>(sum));
        }
    }
    return std::string("checked");
  };
  EXPECT_EQ(run_ranks({.data = 2}, check), std::vector<std::string>(2, "checked"));
}

TEST(GradReducer, FewerAdditionsThanInTheFirstStepAreWaitedForAndMoreRefused) {
  const auto check = [](const Grid& grid) -> std::string {
    const Case c{grid.shape, {.bucket_bytes = 512}};
    tensor::ParamSet params = param_set(grid, c);
    GradReducer reducer(params, grid, c.options);
    const auto step = [&](int additions_of_norm, int64_t num_micro_batches) {
      reducer.begin_step(num_micro_batches);
      for (int64_t i = 0; i < num_micro_batches; ++i)
        for (tensor::Param& param : params.params())
          for (int k = 0; k < (param.spec->name == "final_norm" ? additions_of_norm : 1); ++k)
            params.grad_queue().push(param, [&] { param.grad.add_(1); });
      reducer.finish_step();
      return params.at("final_norm").grad.item<float>();
    };
    if (step(2, 3) != 12 || step(1, 3) != 6 || step(2, 1) != 4 || step(0, 5) != 0) return "wrong sums";
    try {
      step(3, 2);
    } catch (const std::exception& error) {
      return std::string(error.what()).find("final_norm has had 5 additions") != std::string::npos ? "refused"
                                                                                                   : error.what();
    }
    return "not refused";
  };
  for (const std::string& result : run_ranks({.data = 2}, check)) EXPECT_EQ(result, "refused");
}

// Mistakes that reference implementations have made, done by hand: the comparison above sees each.
TEST(GradReducer, SeededMistakesAreSeen) {
  const auto seen = [](const Grid& grid, const Case& c, const auto& mistake) -> std::string {
    Grid used = grid;
    Case made = c;
    mistake(used, made, nullptr);
    tensor::ParamSet params = param_set(grid, c);
    GradReducer reducer(params, used, made.options);
    reducer.begin_step(c.num_micro_batches);
    run_backward(params, grid, c, 0);
    reducer.finish_step();
    mistake(used, made, &reducer);
    try {
      check_pieces(reducer, params, c, 0);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "not seen";
  };
  const auto norms_not_reduced = [](Grid&, Case& c, GradReducer*) { c.options.sequence_parallel = false; };
  const auto tied_not_reduced = [](Grid& grid, Case&, GradReducer*) {
    for (Grid::Shared& shared : grid.shared) shared.group = Group();
  };
  const auto tied_reduced_twice = [](Grid& grid, Case&, GradReducer* reducer) {
    if (reducer == nullptr) return;
    for (const OwnedPiece& piece : reducer->pieces())
      if (piece.param->spec->is_shared()) grid.shared.at(0).group.all_reduce(piece.grad);
  };
  const auto expect_seen = [&](const GridShape& shape, const auto& mistake, const std::string& param) {
    const auto results = run_ranks(shape, [&](const Grid& grid) {
      return seen(grid, {grid.shape, {.sequence_parallel = grid.shape.tensor > 1}}, mistake);
    });
    EXPECT_NE(results[0].find(param), std::string::npos) << results[0];
  };
  const auto none = [](Grid&, Case&, GradReducer*) {};
  expect_seen({.tensor = 2}, none, "not seen");
  expect_seen({.pipeline = 2}, none, "not seen");
  expect_seen({.tensor = 2}, norms_not_reduced, "positions[");
  expect_seen({.pipeline = 2}, tied_not_reduced, "embedding[");
  expect_seen({.pipeline = 2}, tied_reduced_twice, "embedding[");
}

// Eight layers of 512 KiB of fp32 on two ranks.
std::string layers_in_use(const Grid& grid, ZeroStage zero) {
  tensor::install_cpu_allocator();
  constexpr int64_t kLayers = 8, kRows = 512, kColumns = 256;
  std::vector<ParamSpec> specs = {spec_of("embedding", {1}, 0, spec::Placement::replicated())};
  for (int64_t layer = 1; layer <= kLayers; ++layer)
    specs.push_back(spec_of(std::to_string(layer), {kRows, kColumns}, layer, spec::Placement::split(0, {kRows})));
  specs.push_back(spec_of("norm", {1}, kLayers + 1, spec::Placement::replicated()));
  const size_t before = tensor::cpu_memory().bytes_in_use;
  tensor::ParamSet params(specs, {}, at::kFloat, true, {zero, grid.gradient.size()});
  GradReducer reducer(params, grid, {.zero = zero});
  tensor::reset_peak_cpu_memory();
  reducer.begin_step(2);
  for (int64_t i = 0; i < 2; ++i) {
    at::Tensor x = at::ones({1}).requires_grad_(true);
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      x = before_layer(&reducer.layers(), layer, x);
      x = after_layer(&reducer.layers(), layer, x * 2);
    }
    torch::autograd::backward({x}, {at::ones({1})});
    for (auto param = params.params().rbegin(); param != params.params().rend(); ++param)
      params.grad_queue().push(*param, [&, param] { param->grad.add_(1); });
  }
  reducer.finish_step();
  const auto layers = [&](size_t bytes) {
    return std::lround(static_cast<double>(bytes - before) / (kRows * kColumns * 4));
  };
  return concat(layers(tensor::cpu_memory().bytes_in_use), " ", layers(tensor::cpu_memory().peak_bytes_in_use));
}

TEST(GradReducer, MemoryGoesDownWithEveryStage) {
  // Kept, and at most at once. Gloo's threads may let go of a layer a moment after its exchange has ended.
  const auto expect = [](ZeroStage zero, const std::string& kept, int64_t most) {
    const std::string found = run_ranks({.data = 2}, [zero](const Grid& grid) { return layers_in_use(grid, zero); })[0];
    const size_t blank = found.find(' ');
    EXPECT_EQ(found.substr(0, blank), kept);
    EXPECT_LE(std::stol(found.substr(blank)), most);
  };
  expect(ZeroStage::kOptimizer, "16", 16);  // values and gradients whole
  expect(ZeroStage::kGradients, "12", 15);  // gradients halved; one layer's whole, one on its way
  expect(ZeroStage::kParameters, "8", 14);  // values halved; one layer's whole, one ahead, what Gloo copies
}

}  // namespace reduce_test
}  // namespace
}  // namespace espalier::dist
