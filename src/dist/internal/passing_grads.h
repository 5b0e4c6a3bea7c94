// Gradients that come and go (ZeRO 2): of a section only this rank's part of the sum is kept; its whole gradients are
// there while a backward pass adds to them.
//
// When the first addition to a section is about to happen, it gets zeros, and the section that was added to before
// leaves: its sum over ranks starts, and what belongs to this rank is added to what it keeps. A backward pass goes from
// layer to layer, so that each section leaves once per micro-batch (a tied embedding twice) while the next one is
// computed, and at most two exist at once: one to be added to, one on its way. The order is that of the additions,
// the same on all ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "dist/internal/pending_sum.h"
#include "tensor/param_set.h"

namespace espalier::dist {

class PassingGrads {
 public:
  // `params` (with the queue's hook, which this takes) and `group` outlive it.
  PassingGrads(tensor::ParamSet& params, const Group& group, at::ScalarType type, bool overlap);

  // fp32, [part]: what this rank keeps of a section's sum; undefined where gradients stay.
  const at::Tensor& own(size_t section) const { return own_[section]; }
  void begin_step();
  void finish_step();

 private:
  void before_add(const tensor::Param& param);
  void send(size_t section);
  void receive();

  tensor::ParamSet& params_;
  const Group& group_;
  at::ScalarType type_;
  bool overlap_;
  at::TensorOptions fp32_;  // where the parameters are
  std::vector<at::Tensor> own_;
  std::optional<size_t> present_, travelling_;  // sections
  PendingSum pending_;
};

}  // namespace espalier::dist
