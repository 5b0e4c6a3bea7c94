#include "dist/internal/passing_grads.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace espalier::dist {

PassingGrads::PassingGrads(tensor::ParamSet& params, const Group& group, at::ScalarType type, bool overlap,
                           const std::optional<GradientRanks>& canonical)
    : params_(params),
      group_(group),
      type_(type),
      overlap_(overlap),
      fp32_(at::TensorOptions().dtype(at::kFloat).device(params.device())),
      own_(params.layout().sections.size()),
      leaves_(own_.size()),
      sent_(own_.size()) {
  bool any = false;
  for (size_t i = 0; i < own_.size(); ++i) {
    const spec::FlatSection& section = params_.layout().sections[i];
    if (!spec::gradients_come_and_go(section, params_.sharing())) continue;
    own_[i] = at::zeros({section.count() / group_.size()}, fp32_);
    if (canonical) leaves_[i].emplace(*canonical, group_);
    any = true;
  }
  if (any) params_.grad_queue().set_before_add([this](const tensor::Param& param) { before_add(param); });
}

void PassingGrads::begin_step() {
  ESPALIER_CHECK(!present_ && !travelling_, "the step before has not finished");
  for (const at::Tensor& own : own_)
    if (own.defined()) own.zero_();
  std::fill(sent_.begin(), sent_.end(), false);
  round_ = 0;
}

void PassingGrads::before_add(const tensor::Param& param) {
  if (!param.grad_comes_and_goes) return;
  const size_t section = params_.layout().section_of[params_.index_of(param)];
  if (present_ == section || std::find(staying_.begin(), staying_.end(), section) != staying_.end()) return;
  const bool stays = leaves_[section] && params_.layout().sections[section].is_shared;
  ESPALIER_CHECK(!sent_[section], "gradients of '", param.spec->name, "' come back after their section has left");
  if (present_ && !stays) send(*present_);
  params_.set_section_grads(section, at::zeros({params_.layout().sections[section].count()}, fp32_));
  if (stays)
    staying_.push_back(section);
  else
    present_ = section;
}

void PassingGrads::send(size_t section) {
  receive();
  if (leaves_[section]) return send_leaf(section);
  const at::Tensor grads = params_.section_grads(section);
  params_.set_section_grads(section, {});
  present_.reset();
  const int64_t count = own_[section].numel();
  pending_ = PendingSum(grads, {group_.rank() * count, (group_.rank() + 1) * count}, group_, type_);
  travelling_ = section;
  if (!overlap_) receive();
}

void PassingGrads::receive() {
  if (!travelling_) return;
  if (leaves_[*travelling_]) return receive_leaf();
  own_[*travelling_].add_(pending_.wait());
  travelling_.reset();
}

void PassingGrads::finish_step() {
  if (present_) send(*present_);
  receive();
  for (size_t section = 0; section < own_.size(); ++section)
    if (leaves_[section]) own_[section].copy_(leaves_[section]->take());
}

void PassingGrads::send_leaf(size_t section) {
  leaving_ = params_.section_grads(section);
  params_.set_section_grads(section, {});
  if (present_ == section) present_.reset();
  sent_[section] = true;
  leaves_[section]->send(round_, leaving_);
  travelling_ = section;
  if (!overlap_) receive();
}

void PassingGrads::receive_leaf() {
  leaves_[*travelling_]->receive();
  travelling_.reset();
  leaving_.reset();
}

void PassingGrads::end_micro_batch() {
  if (present_) send(*present_);
  for (const size_t section : std::exchange(staying_, {})) send(section);
  receive();
  for (size_t section = 0; section < own_.size(); ++section)
    if (leaves_[section] && !sent_[section]) leaves_[section]->add_zeros(round_, fp32_, own_[section].numel());
  std::fill(sent_.begin(), sent_.end(), false);
  ++round_;
}

}  // namespace espalier::dist
