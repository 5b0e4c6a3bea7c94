#include "dist/internal/passing_grads.h"

#include <ATen/ATen.h>

#include "base/error.h"

namespace espalier::dist {

PassingGrads::PassingGrads(tensor::ParamSet& params, const Group& group, at::ScalarType type, bool overlap)
    : params_(params),
      group_(group),
      type_(type),
      overlap_(overlap),
      fp32_(at::TensorOptions().dtype(at::kFloat).device(params.device())),
      own_(params.layout().sections.size()) {
  bool any = false;
  for (size_t i = 0; i < own_.size(); ++i) {
    const spec::FlatSection& section = params_.layout().sections[i];
    if (!spec::gradients_come_and_go(section, params_.sharing())) continue;
    own_[i] = at::zeros({section.count() / group_.size()}, fp32_);
    any = true;
  }
  if (any) params_.grad_queue().set_before_add([this](const tensor::Param& param) { before_add(param); });
}

void PassingGrads::begin_step() {
  ESPALIER_CHECK(!present_ && !travelling_, "the step before has not finished");
  for (const at::Tensor& own : own_)
    if (own.defined()) own.zero_();
}

void PassingGrads::before_add(const tensor::Param& param) {
  if (!param.grad_comes_and_goes) return;
  const size_t section = params_.layout().section_of[params_.index_of(param)];
  if (present_ == section) return;
  if (present_) send(*present_);
  params_.set_section_grads(section, at::zeros({params_.layout().sections[section].count()}, fp32_));
  present_ = section;
}

void PassingGrads::send(size_t section) {
  receive();
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
  own_[*travelling_].add_(pending_.wait());
  travelling_.reset();
}

void PassingGrads::finish_step() {
  if (present_) send(*present_);
  receive();
}

}  // namespace espalier::dist
