// Gradients summed over forked ranks against a plain loop over the same contributions.
#include "dist/reduce.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>


#include "base/error.h"
#include "dist/local_ranks.h"
#include "plan/stage_params.h"

namespace espalier::dist {
namespace {
namespace reduce_test {

using spec::GridPosition;
using spec::GridShape;
using spec::ParamSpec;

ParamSpec spec_of(const std::string& name, std::vector<int64_t> shape, int64_t depth, spec::Placement placement) {
  ParamSpec spec;
  spec.name = name;
  spec.shape = std::move(shape);
  spec.depth = depth;
  spec.tensor_placement = std::move(placement);
  return spec;
}

constexpr int64_t kNumLayers = 3;

// A model's parameters in awkward sizes: a tied embedding that does not divide, norms, columns, rows, and one number.
std::vector<ParamSpec> model_specs() {
  using spec::Placement;
  std::vector<ParamSpec> specs = {spec_of("embedding", {33, 7}, 0, Placement::split(0, {33})),
                                  spec_of("positions", {5, 7}, 0, Placement::replicated())};
  specs[0].tied_to_output = true;
  for (int64_t layer = 1; layer <= kNumLayers; ++layer) {
    const std::string name = "layers." + std::to_string(layer - 1);
    specs.push_back(spec_of(name + ".norm", {7}, layer, Placement::replicated()));
    specs.push_back(spec_of(name + ".column", {12, 7}, layer, Placement::split(0, {12}, 3)));
    specs.push_back(spec_of(name + ".row", {7, 12}, layer, Placement::split(1, {12})));
    specs.push_back(spec_of(name + ".row_bias", {7}, layer, Placement::replicated()));
  }
  specs.push_back(spec_of("final_norm", {1}, kNumLayers + 1, Placement::replicated()));
  return specs;
}

bool is_replicated(const ParamSpec& spec) { return spec.tensor_placement.kind == spec::Placement::Kind::kReplicated; }

// What one use of a parameter on one rank adds to its gradient in one micro-batch.
struct Source {
  int64_t step = 0, micro_batch = 0;
  int64_t replica = 0;     // context and data
  int64_t tensor = 0;      // 0 unless the use is split over tensor ranks
  int64_t use = 0;         // 1: as the output's weight
};

// A multiple of 1/64 between -4 and 4: sums of them are exact in fp32, in any order.
double element(const ParamSpec& spec, const Source& source, int64_t index) {
  const std::string key = concat(spec.name, "/", source.step, "/", source.micro_batch, "/", source.replica, "/",
                                 source.tensor, "/", source.use, "/", index);
  return static_cast<double>(static_cast<int64_t>(std::hash<std::string>{}(key) % 513) - 256) / 64;
}

struct Case {
  GridShape shape;
  ReduceOptions options;
  int64_t num_micro_batches = 2;
};

// The rank's part of the gradient that a source gives.
at::Tensor local_part(const ParamSpec& spec, const Source& source, const spec::TensorShard& shard) {
  const at::Tensor values = at::zeros({spec::num_local_elements(spec, shard)});
  float* data = values.data_ptr<float>();
  for (const spec::Extent& extent : spec::local_extents(spec, shard))
    for (int64_t i = 0; i < extent.count; ++i)
      data[extent.local_begin + i] = static_cast<float>(element(spec, source, extent.global_begin + i));
  return values.view(spec::local_shape(spec, shard));
}

// The whole gradient of one step, in double, by definition.
double expected_element(const Case& c, const ParamSpec& spec, int64_t step, int64_t index) {
  double sum = 0;
  const int64_t num_tensor = is_replicated(spec) && c.options.sequence_parallel ? c.shape.tensor : 1;
  for (int64_t micro_batch = 0; micro_batch < c.num_micro_batches; ++micro_batch)
    for (int64_t replica = 0; replica < c.shape.context * c.shape.data; ++replica)
      for (int64_t tensor = 0; tensor < num_tensor; ++tensor)
        for (int64_t use = 0; use <= (spec.tied_to_output ? 1 : 0); ++use)
          sum += element(spec, {step, micro_batch, replica, tensor, use}, index);
  return sum;
}

std::vector<ParamSpec> specs_on(const Grid& grid) {
  std::vector<plan::DepthRange> parts;
  if (grid.shape.pipeline == 1) parts = {{0, kNumLayers + 2}};
  if (grid.shape.pipeline == 2) parts = {{0, 2}, {2, kNumLayers + 2}};
  if (grid.shape.pipeline == 3) parts = {{0, 2}, {2, 3}, {3, kNumLayers + 2}};
  const plan::Partition partition{grid.shape.pipeline, 1, kNumLayers, parts};
  return plan::stage_params(model_specs(), partition, grid.position.pipeline);
}

// The uses of a parameter on this stage, in the order of a backward pass.
std::vector<int64_t> uses_of(const ParamSpec& spec) {
  if (!spec.tied_to_output) return {0};
  if (spec.is_copy) return {1};
  return {0};
}

// Adds what this rank contributes in one step, through the queue, as a backward pass would.
void run_backward(tensor::ParamSet& params, const Grid& grid, const Case& c, int64_t step) {
  for (int64_t micro_batch = 0; micro_batch < c.num_micro_batches; ++micro_batch) {
    const auto add = [&](tensor::Param& param, int64_t use) {
      const bool split_use = is_replicated(*param.spec) && c.options.sequence_parallel;
      const Source source{step, micro_batch, grid.gradient.rank(), split_use ? grid.position.tensor : 0, use};
      const at::Tensor part = local_part(*param.spec, source, params.shard());
      params.grad_queue().push(param, [&param, part] { param.grad.add_(part); });
    };
    const bool both_ends = grid.shape.pipeline == 1;
    if (both_ends) add(params.at("embedding"), 1);
    for (auto param = params.params().rbegin(); param != params.params().rend(); ++param)
      for (const int64_t use : uses_of(*param->spec)) add(*param, use);
  }
}

// Compares every piece; returns how many elements the rank owns.
int64_t check_pieces(const GradReducer& reducer, const tensor::ParamSet& params, const Case& c, int64_t step) {
  int64_t count = 0;
  for (const OwnedPiece& piece : reducer.pieces()) {
    const ParamSpec& spec = *piece.param->spec;
    const at::Tensor grad = piece.grad.reshape({-1});
    for (const auto& extent : spec::clip_to_local(spec::local_extents(spec, params.shard()), piece.begin, piece.end))
      for (int64_t i = 0; i < extent.count; ++i, ++count) {
        const double actual = grad[extent.local_begin + i].item<double>();
        const double expected = expected_element(c, spec, step, extent.global_begin + i);
        if (actual != expected)
          throw std::runtime_error(concat(spec.name, "[", extent.global_begin + i, "] is ", actual, ", not ", expected,
                                          " in step ", step));
      }
  }
  return count;
}

std::string check_case(const Grid& grid, const Case& c) {
  tensor::ParamSet params(specs_on(grid), grid.tensor_shard(), at::kFloat, true, grid.gradient.size());
  GradReducer reducer(params, grid, c.options);
  int64_t count = 0;
  for (int64_t step = 0; step < 3; ++step) {
    reducer.begin_step(c.num_micro_batches);
    run_backward(params, grid, c, step);
    reducer.finish_step();
    count = check_pieces(reducer, params, c, step);
  }
  return std::to_string(count);
}

void expect_sums(const Case& c) {
  SCOPED_TRACE(concat(spec::to_string(c.shape), " zero ", static_cast<int>(c.options.zero)));
  const auto counts = run_ranks(c.shape, [&](const Grid& grid) { return check_case(grid, c); });
  EXPECT_EQ(counts.size(), static_cast<size_t>(c.shape.num_ranks()));
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
  for (const GridShape& shape : shapes)
    for (const ZeroStage zero : {ZeroStage::kNone, ZeroStage::kOptimizer})
      expect_sums({shape, {.sequence_parallel = shape.tensor > 1, .zero = zero, .bucket_bytes = 512}});
}

}  // namespace reduce_test
}  // namespace
}  // namespace espalier::dist
