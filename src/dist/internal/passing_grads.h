// Gradients that come and go (ZeRO 2): of a section only this rank's part of the sum is kept; its whole gradients are
// there while a backward pass adds to them.
//
// When the first addition to a section is about to happen, it gets zeros, and the section that was added to before
// leaves: its sum over ranks starts, and what belongs to this rank is added to what it keeps. A backward pass goes from
// layer to layer, so that each section leaves once per micro-batch (a tied embedding twice) while the next one is
// computed, and at most two exist at once: one to be added to, one on its way. The order is that of the additions,
// the same on all ranks.
//
// In canonical order (ordered_sum.h) every section leaves once per micro-batch: what several depths use, when the
// micro-batch ends, so that all its additions are one sum.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "dist/internal/ordered_sum.h"
#include "dist/internal/pending_sum.h"
#include "tensor/param_set.h"

namespace espalier::dist {

class PassingGrads {
 public:
  // `params` (with the queue's hook, which this takes) and `group` outlive it.
  // `canonical`: the ranks of the group, where sums are in canonical order.
  PassingGrads(tensor::ParamSet& params, const Group& group, at::ScalarType type, bool overlap,
               const std::optional<GradientRanks>& canonical = {});

  // fp32, [part]: what this rank keeps of a section's sum; undefined where gradients stay.
  const at::Tensor& own(size_t section) const { return own_[section]; }
  void begin_step();
  void end_micro_batch();  // needed in canonical order only
  void finish_step();

 private:
  void before_add(const tensor::Param& param);
  void send(size_t section);
  void receive();
  void send_leaf(size_t section);
  void receive_leaf();

  tensor::ParamSet& params_;
  const Group& group_;
  at::ScalarType type_;
  bool overlap_;
  at::TensorOptions fp32_;  // where the parameters are
  std::vector<at::Tensor> own_;
  std::optional<size_t> present_, travelling_;  // sections
  PendingSum pending_;

  // In canonical order:
  std::vector<std::optional<LeafSum>> leaves_;  // of sections
  std::vector<size_t> staying_;                 // until the micro-batch ends
  std::vector<bool> sent_;                      // in this micro-batch
  at::Tensor leaving_;                          // of travelling_
  int64_t round_ = 0;
};

}  // namespace espalier::dist
