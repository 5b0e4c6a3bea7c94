#include "tensor/param_set.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "base/error.h"
#include "tensor/rng.h"

namespace espalier::tensor {
namespace {
// Elements that one task of a parallel loop draws.
constexpr int64_t kDrawGrain = 1 << 14;

// The local part of a parameter's first values, fp32.
at::Tensor draw(const spec::ParamSpec& spec, const spec::TensorShard& shard, uint64_t seed) {
  at::Tensor values =
      at::full(spec::local_shape(spec, shard), spec.init.value, at::TensorOptions().dtype(at::kFloat));
  if (spec.init.kind != spec::Init::Kind::kNormal) return values;
  const PhiloxKey key = philox_key(seed, ("init/" + spec.name).c_str());
  std::vector<spec::Extent> runs;  // of even length, so that threads share them well
  for (const spec::Extent& extent : spec::local_extents(spec, shard))
    for (int64_t done = 0; done < extent.count; done += kDrawGrain)
      runs.push_back({extent.global_begin + done, extent.local_begin + done, std::min(kDrawGrain, extent.count - done)});
  float* const data = values.data_ptr<float>();
  at::parallel_for(0, static_cast<int64_t>(runs.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t run = begin; run < end; ++run) {
      const spec::Extent& extent = runs[static_cast<size_t>(run)];
      fill_normal(key, spec.init.value, extent.global_begin, extent.count, data + extent.local_begin);
    }
  });
  return values;
}
}  // namespace

ParamSet::ParamSet(std::vector<spec::ParamSpec> specs, const spec::TensorShard& shard, at::ScalarType compute_type,
                   bool with_grad, int64_t num_sharers)
    : specs_(std::make_unique<const std::vector<spec::ParamSpec>>(std::move(specs))),
      shard_(shard),
      layout_(spec::flat_layout(*specs_, shard, num_sharers)),
      compute_type_(compute_type) {
  const int64_t total = layout_.size;
  flat_values_ = at::zeros({total}, at::TensorOptions().dtype(compute_type));
  if (with_grad) flat_grads_ = at::zeros({total}, at::TensorOptions().dtype(at::kFloat));

  params_.reserve(specs_->size());
  for (size_t i = 0; i < specs_->size(); ++i) {
    const spec::ParamSpec& spec = (*specs_)[i];
    const std::vector<int64_t> shape = spec::local_shape(spec, shard);
    const auto view_in = [&](const at::Tensor& flat) {
      return flat.narrow(0, layout_.offsets[i], layout_.counts[i]).view(shape);
    };
    Param param{.spec = &spec, .value = view_in(flat_values_), .grad = {}};
    if (with_grad) param.grad = view_in(flat_grads_);
    ESPALIER_CHECK(index_.emplace(spec.name, i).second, "two parameters are named ", spec.name);
    params_.push_back(std::move(param));
  }
}

Param& ParamSet::at(const std::string& name) {
  const auto found = index_.find(name);
  ESPALIER_CHECK(found != index_.end(), "no parameter is named ", name);
  return params_[found->second];
}

void ParamSet::zero_grad() { flat_grads_.zero_(); }

void ParamSet::initialize(uint64_t seed, const std::function<void(Param&, const at::Tensor& fp32)>& sink) {
  for (Param& param : params_) {
    const at::Tensor values = draw(*param.spec, shard_, seed);
    if (sink) sink(param, values);
    param.value.copy_(values);
  }
}

}  // namespace espalier::tensor
