// The parameters of a model on this process: storage for its shard of a list of specs, found by name.
//
// Values are in one flat buffer of the compute type, gradients in one flat fp32 buffer, both laid out as
// spec/flat_layout.h says, each parameter aligned to 64 bytes, so that the optimizer and the reduction can walk them
// without gaps that matter (the padding between parameters stays zero). Under ZeRO 2 and 3 there is no such buffer, but
// one tensor per section, of which some come and go.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "spec/flat_layout.h"
#include "spec/shard.h"
#include "tensor/param.h"

namespace espalier::tensor {

class ParamSet {
 public:
  // `specs`: what this process's stages hold. `with_grad` false: for generation, no gradients are kept. `sharing`: what
  // data-parallel ranks divide among themselves. `device`: where values and gradients are.
  ParamSet(std::vector<spec::ParamSpec> specs, const spec::TensorShard& shard, at::ScalarType compute_type,
           bool with_grad, const spec::Sharing& sharing = {}, at::Device device = at::kCPU);

  // CHECKs that it exists.
  Param& at(const std::string& name);
  std::vector<Param>& params() { return params_; }
  const std::vector<spec::ParamSpec>& specs() const { return *specs_; }
  const spec::TensorShard& shard() const { return shard_; }
  at::ScalarType compute_type() const { return compute_type_; }

  const spec::Sharing& sharing() const { return sharing_; }
  at::Device device() const { return device_; }

  // All values, and all gradients, as one tensor each: [elements], with the padding between parameters. Undefined where
  // some of them come and go.
  const at::Tensor& flat_values() const { return flat_values_; }
  const at::Tensor& flat_grads() const { return flat_grads_; }
  const spec::FlatLayout& layout() const { return layout_; }
  // Number of a parameter in the list.
  size_t index_of(const Param& param) const { return static_cast<size_t>(&param - params_.data()); }
  // Where a parameter begins in them, in elements.
  int64_t flat_offset(const Param& param) const { return layout_.offsets[index_of(param)]; }

  // The same of one section; undefined while it is not there.
  const at::Tensor& section_values(size_t section) const { return section_values_[section]; }
  const at::Tensor& section_grads(size_t section) const { return section_grads_[section]; }
  // Gives a section storage, or takes it away (an undefined tensor): its parameters are views of it.
  void set_section_values(size_t section, const at::Tensor& storage);
  void set_section_grads(size_t section, const at::Tensor& storage);

  GradQueue& grad_queue() { return grad_queue_; }
  // Of the gradients that exist.
  void zero_grad();
  // The same, but those on the CPU only become stale (param.h), until something overwrites them or settle_grad() is
  // called.
  void forget_grads();

  // Draws every parameter as its spec says, on the CPU and from (seed, name) alone, so that shards of any layout on any
  // device are parts of the same model; fp32 values are given to `sink` (the optimizer's master copy) before they are
  // rounded to the compute type. Values that do not exist are only given to `sink`.
  void initialize(uint64_t seed, const std::function<void(Param&, const at::Tensor& fp32)>& sink);

 private:
  at::Tensor view_of(const at::Tensor& storage, size_t section, size_t param) const;

  std::unique_ptr<const std::vector<spec::ParamSpec>> specs_;
  std::vector<Param> params_;
  std::unordered_map<std::string, size_t> index_;
  spec::TensorShard shard_;
  spec::FlatLayout layout_;
  at::ScalarType compute_type_;
  spec::Sharing sharing_;
  at::Device device_;
  at::Tensor flat_values_, flat_grads_;
  std::vector<at::Tensor> section_values_, section_grads_;
  GradQueue grad_queue_;
};

}  // namespace espalier::tensor
