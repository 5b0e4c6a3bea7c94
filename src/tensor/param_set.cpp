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

// Values of a uniform distribution over [-bound, bound): the same 53-bit words as fill_normal's, element i from counter
// i / 2.
void fill_uniform(PhiloxKey key, double bound, int64_t first, int64_t count, float* values) {
  for (int64_t element = first; element < first + count; ++element) {
    const uint64_t pair = static_cast<uint64_t>(element) / 2;
    const PhiloxBlock bits = philox4x32(key, {{static_cast<uint32_t>(pair), static_cast<uint32_t>(pair >> 32), 0, 0}});
    const uint32_t* const words = bits.word + (element % 2 == 0 ? 0 : 2);
    const double share = static_cast<double>((uint64_t{words[0]} << 21) | (words[1] >> 11)) * 0x1p-53;
    values[element - first] = static_cast<float>(bound * (2 * share - 1));
  }
}

// The local part of a parameter's first values, fp32.
at::Tensor draw(const spec::ParamSpec& spec, const spec::TensorShard& shard, uint64_t seed) {
  const std::vector<int64_t> shape = spec::local_shape(spec, shard);
  if (spec.init.kind == spec::Init::Kind::kConstant) return at::full(shape, spec.init.value, at::kFloat);
  at::Tensor values = at::empty(shape, at::kFloat);
  const auto fill = spec.init.kind == spec::Init::Kind::kNormal ? fill_normal : fill_uniform;
  const PhiloxKey key = philox_key(seed, ("init/" + spec.name).c_str());
  std::vector<spec::Extent> runs;  // of even length, so that threads share them well
  for (const spec::Extent& extent : spec::local_extents(spec, shard))
    for (int64_t done = 0; done < extent.count; done += kDrawGrain)
      runs.push_back(
          {extent.global_begin + done, extent.local_begin + done, std::min(kDrawGrain, extent.count - done)});
  float* const data = values.data_ptr<float>();
  at::parallel_for(0, static_cast<int64_t>(runs.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t run = begin; run < end; ++run) {
      const spec::Extent& extent = runs[static_cast<size_t>(run)];
      fill(key, spec.init.value, extent.global_begin, extent.count, data + extent.local_begin);
    }
  });
  return values;
}
}  // namespace

ParamSet::ParamSet(std::vector<spec::ParamSpec> specs, const spec::TensorShard& shard, at::ScalarType compute_type,
                   bool with_grad, const spec::Sharing& sharing, at::Device device)
    : specs_(std::make_unique<const std::vector<spec::ParamSpec>>(std::move(specs))),
      shard_(shard),
      layout_(spec::flat_layout(*specs_, shard, sharing.stage == spec::ZeroStage::kNone ? 1 : sharing.num_ranks)),
      compute_type_(compute_type),
      sharing_(sharing.num_ranks > 1 ? sharing : spec::Sharing{}),
      device_(device),
      section_values_(layout_.sections.size()),
      section_grads_(layout_.sections.size()) {
  params_.reserve(specs_->size());
  for (size_t i = 0; i < specs_->size(); ++i) {
    ESPALIER_CHECK(index_.emplace((*specs_)[i].name, i).second, "two parameters are named ", (*specs_)[i].name);
    params_.push_back({.spec = &(*specs_)[i]});
  }
  const auto values = at::TensorOptions().dtype(compute_type).device(device);
  const auto grads = values.dtype(at::kFloat);
  if (sharing_.stage < spec::ZeroStage::kParameters) flat_values_ = at::zeros({layout_.size}, values);
  if (sharing_.stage < spec::ZeroStage::kGradients && with_grad) flat_grads_ = at::zeros({layout_.size}, grads);
  for (size_t i = 0; i < layout_.sections.size(); ++i) {
    const spec::FlatSection& section = layout_.sections[i];
    const auto storage = [&](const at::Tensor& flat, const at::TensorOptions& options) {
      return flat.defined() ? flat.narrow(0, section.begin, section.count()) : at::zeros({section.count()}, options);
    };
    const bool grads_go = spec::gradients_come_and_go(section, sharing_);
    if (!spec::values_come_and_go(section, sharing_)) set_section_values(i, storage(flat_values_, values));
    if (with_grad && !grads_go) set_section_grads(i, storage(flat_grads_, grads));
    for (const size_t param : section.params) params_[param].grad_comes_and_goes = with_grad && grads_go;
  }
}

void ParamSet::set_section_values(size_t section, const at::Tensor& storage) {
  section_values_[section] = storage;
  for (const size_t param : layout_.sections[section].params)
    params_[param].value = storage.defined() ? view_of(storage, section, param) : at::Tensor();
}

void ParamSet::set_section_grads(size_t section, const at::Tensor& storage) {
  section_grads_[section] = storage;
  for (const size_t param : layout_.sections[section].params) {
    params_[param].grad = storage.defined() ? view_of(storage, section, param) : at::Tensor();
    params_[param].grad_is_stale = false;
  }
}

at::Tensor ParamSet::view_of(const at::Tensor& storage, size_t section, size_t param) const {
  const int64_t begin = layout_.offsets[param] - layout_.sections[section].begin;
  return storage.narrow(0, begin, layout_.counts[param]).view(spec::local_shape((*specs_)[param], shard_));
}

Param& ParamSet::at(const std::string& name) {
  const auto found = index_.find(name);
  ESPALIER_CHECK(found != index_.end(), "no parameter is named ", name);
  return params_[found->second];
}

void ParamSet::forget_grads() {
  if (!device_.is_cpu()) return zero_grad();
  for (Param& param : params_) param.grad_is_stale = param.grad.defined();
}

void ParamSet::zero_grad() {
  for (Param& param : params_) param.grad_is_stale = false;
  if (flat_grads_.defined()) {
    flat_grads_.zero_();
    return;
  }
  for (const at::Tensor& grads : section_grads_)
    if (grads.defined()) grads.zero_();
}

void ParamSet::initialize(uint64_t seed, const std::function<void(Param&, const at::Tensor& fp32)>& sink) {
  for (Param& param : params_) {
    const at::Tensor values = draw(*param.spec, shard_, seed);
    if (sink) sink(param, values);
    if (param.value.defined()) param.value.copy_(values);
  }
}

}  // namespace espalier::tensor
