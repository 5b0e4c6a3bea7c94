// A small model whose gradients are known: what every use of every parameter adds on every rank is a function of its
// name and place, and the sum over all of them, by definition, is what any layout has to arrive at.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"
#include "dist/local_ranks.h"
#include "dist/reduce.h"
#include "plan/stage_params.h"

namespace espalier::test {

using dist::GradReducer;
using dist::Grid;
using dist::OwnedPiece;
using dist::ReduceOptions;
using dist::ZeroStage;
using spec::GridShape;
using spec::ParamSpec;

inline ParamSpec spec_of(const std::string& name, std::vector<int64_t> shape, int64_t depth,
                         spec::Placement placement) {
  ParamSpec spec;
  spec.name = name;
  spec.shape = std::move(shape);
  spec.depth = depth;
  spec.tensor_placement = std::move(placement);
  return spec;
}

inline constexpr int64_t kNumLayers = 3;

// A model's parameters in awkward sizes: a tied embedding that does not divide, norms, columns, rows, and one number.
inline std::vector<ParamSpec> model_specs() {
  using spec::Placement;
  std::vector<ParamSpec> specs = {spec_of("embedding", {33, 7}, 0, Placement::split(0, {33})),
                                  spec_of("positions", {5, 7}, 0, Placement::replicated())};
  specs[0].other_depths = {kNumLayers + 1};
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

inline bool is_replicated(const ParamSpec& spec) {
  return spec.tensor_placement.kind == spec::Placement::Kind::kReplicated;
}

// What one use of a parameter on one rank adds to its gradient in one micro-batch.
struct Source {
  int64_t step = 0, micro_batch = 0;
  int64_t replica = 0;  // context and data
  int64_t tensor = 0;   // 0 unless the use is split over tensor ranks
  int64_t use = 0;      // 1: as the output's weight
};

// A multiple of 1/64 between -4 and 4: sums of them are exact in fp32, in any order.
inline double element(const ParamSpec& spec, const Source& source, int64_t index) {
  uint64_t hash = std::hash<std::string>{}(spec.name);
  for (const int64_t number : {source.step, source.micro_batch, source.replica, source.tensor, source.use, index}) {
    hash = (hash ^ static_cast<uint64_t>(number)) * 0x9E3779B97F4A7C15;
    hash ^= hash >> 29;
  }
  return static_cast<double>(static_cast<int64_t>(hash % 513) - 256) / 64;
}

struct Case {
  GridShape shape;
  ReduceOptions options;
  int64_t num_micro_batches = 2;
};

// The rank's part of the gradient that a source gives.
inline at::Tensor local_part(const ParamSpec& spec, const Source& source, const spec::TensorShard& shard) {
  const at::Tensor values = at::zeros({spec::num_local_elements(spec, shard)});
  float* data = values.data_ptr<float>();
  for (const spec::Extent& extent : spec::local_extents(spec, shard))
    for (int64_t i = 0; i < extent.count; ++i)
      data[extent.local_begin + i] = static_cast<float>(element(spec, source, extent.global_begin + i));
  return values.view(spec::local_shape(spec, shard));
}

// The whole gradient of one step, in double, by definition.
inline double expected_element(const Case& c, const ParamSpec& spec, int64_t step, int64_t index) {
  double sum = 0;
  const int64_t num_tensor = is_replicated(spec) && c.options.sequence_parallel ? c.shape.tensor : 1;
  for (int64_t micro_batch = 0; micro_batch < c.num_micro_batches; ++micro_batch)
    for (int64_t replica = 0; replica < c.shape.context * c.shape.data; ++replica)
      for (int64_t tensor = 0; tensor < num_tensor; ++tensor)
        for (int64_t use = 0; use <= (spec.is_shared() ? 1 : 0); ++use)
          sum += element(spec, {step, micro_batch, replica, tensor, use}, index);
  return sum;
}

inline std::vector<ParamSpec> specs_on(const Grid& grid) {
  std::vector<plan::DepthRange> parts;
  if (grid.shape.pipeline == 1) parts = {{0, kNumLayers + 2}};
  if (grid.shape.pipeline == 2) parts = {{0, 2}, {2, kNumLayers + 2}};
  if (grid.shape.pipeline == 3) parts = {{0, 2}, {2, 3}, {3, kNumLayers + 2}};
  const plan::Partition partition{grid.shape.pipeline, 1, kNumLayers, parts};
  return plan::stage_params(model_specs(), partition, grid.position.pipeline);
}

// Adds what this rank contributes in one step, through the queue, as a backward pass would.
inline void run_backward(tensor::ParamSet& params, const Grid& grid, const Case& c, int64_t step) {
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
      add(*param, param->spec->is_copy ? 1 : 0);
  }
}

// Compares every piece; returns how many elements the rank owns.
inline int64_t check_pieces(const GradReducer& reducer, const tensor::ParamSet& params, const Case& c, int64_t step) {
  int64_t count = 0;
  for (const OwnedPiece& piece : reducer.pieces()) {
    const ParamSpec& spec = *piece.param->spec;
    const at::Tensor grad = piece.grad.contiguous();
    const float* const values = grad.const_data_ptr<float>();
    for (const auto& extent : spec::clip_to_local(spec::local_extents(spec, params.shard()), piece.begin, piece.end))
      for (int64_t i = 0; i < extent.count; ++i, ++count) {
        const double actual = values[extent.local_begin + i];
        const double expected = expected_element(c, spec, step, extent.global_begin + i);
        if (actual != expected)
          throw std::runtime_error(
              concat(spec.name, "[", extent.global_begin + i, "] is ", actual, ", not ", expected, " in step ", step));
      }
  }
  return count;
}

// The parameters that a rank holds.
inline tensor::ParamSet param_set(const Grid& grid, const Case& c, at::ScalarType type = at::kFloat) {
  return tensor::ParamSet(specs_on(grid), grid.tensor_shard(), type, true, {c.options.zero, grid.gradient.size()});
}

}  // namespace espalier::test
