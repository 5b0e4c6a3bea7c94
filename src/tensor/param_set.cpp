#include "tensor/param_set.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "base/error.h"
#include "tensor/rng.h"

namespace espalier::tensor {
namespace {
constexpr int64_t kAlignElements = 32;  // 64 bytes of bf16, 128 of fp32
int64_t round_up(int64_t value) { return (value + kAlignElements - 1) / kAlignElements * kAlignElements; }
}  // namespace

ParamSet::ParamSet(std::vector<spec::ParamSpec> specs, at::ScalarType compute_type, bool with_grad)
    : specs_(std::make_unique<const std::vector<spec::ParamSpec>>(std::move(specs))), compute_type_(compute_type) {
  int64_t total = 0;
  for (const spec::ParamSpec& spec : *specs_) total += round_up(spec.num_elements());
  flat_values_ = at::zeros({total}, at::TensorOptions().dtype(compute_type));
  if (with_grad) flat_grads_ = at::zeros({total}, at::TensorOptions().dtype(at::kFloat));

  params_.reserve(specs_->size());
  int64_t offset = 0;
  for (const spec::ParamSpec& spec : *specs_) {
    Param param{
        .spec = &spec, .value = flat_values_.narrow(0, offset, spec.num_elements()).view(spec.shape), .grad = {}};
    if (with_grad) param.grad = flat_grads_.narrow(0, offset, spec.num_elements()).view(spec.shape);
    ESPALIER_CHECK(index_.emplace(spec.name, params_.size()).second, "two parameters are named ", spec.name);
    params_.push_back(std::move(param));
    offset += round_up(spec.num_elements());
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
    const spec::ParamSpec& spec = *param.spec;
    at::Tensor values = at::full(spec.shape, spec.init.value, at::TensorOptions().dtype(at::kFloat));
    if (spec.init.kind == spec::Init::Kind::kNormal) {
      const PhiloxKey key = philox_key(seed, ("init/" + spec.name).c_str());
      float* data = values.data_ptr<float>();
      at::parallel_for(0, spec.num_elements(), 1 << 14, [&](int64_t begin, int64_t end) {
        fill_normal(key, spec.init.value, begin, end - begin, data + begin);
      });
    }
    if (sink) sink(param, values);
    param.value.copy_(values);
  }
}

}  // namespace espalier::tensor
