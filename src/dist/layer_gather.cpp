#include "dist/layer_gather.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"

namespace espalier::dist {

LayerGather::LayerGather(tensor::ParamSet& params, const Group& group)
    : params_(params), group_(group), own_(params.layout().sections.size()) {
  for (size_t i = 0; i < own_.size(); ++i) {
    const spec::FlatSection& section = params_.layout().sections[i];
    if (!spec::values_come_and_go(section, params_.sharing())) continue;
    own_[i] = at::zeros({section.count() / group_.size()},
                        at::TensorOptions().dtype(params_.compute_type()).device(params_.device()));
    section_of_.emplace(section.depth - 1, i);
  }
}

LayerGather::Gathering LayerGather::start(int64_t layer) const {
  const size_t section = section_of_.at(layer);
  const at::Tensor values = at::empty({params_.layout().sections[section].count()}, own_[section].options());
  return {layer, values, group_.start_all_gather_into(values, own_[section])};
}

void LayerGather::enter(int64_t layer) {
  const auto found = section_of_.find(layer);
  if (found == section_of_.end()) return;
  ESPALIER_CHECK(!params_.section_values(found->second).defined(), "layer ", layer, " is gathered already");
  const bool is_ahead = ahead_ && ahead_->layer == layer;
  Gathering gathering = is_ahead ? std::move(*ahead_) : start(layer);
  if (is_ahead) ahead_.reset();
  gathering.pending.wait();
  params_.set_section_values(found->second, gathering.values);
  const int64_t next = layer > last_ ? layer + 1 : layer - 1;
  // A recomputed layer is entered twice: what its first time has under way is what its second time wants.
  if (ahead_ && ahead_->layer != next) forget_ahead();
  if (!ahead_ && section_of_.contains(next)) ahead_ = start(next);
  last_ = layer;
}

void LayerGather::leave(int64_t layer) {
  const auto found = section_of_.find(layer);
  if (found != section_of_.end()) params_.set_section_values(found->second, {});
}

void LayerGather::forget_ahead() {
  if (ahead_) ahead_->pending.wait();
  ahead_.reset();
}

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

enum class Border : int64_t { kBefore, kAfter };

void cross(LayerGather* gather, int64_t layer, bool inwards) {
  if (inwards)
    gather->enter(layer);
  else
    gather->leave(layer);
}

struct LayerBorder : torch::autograd::Function<LayerBorder> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, LayerGather* gather, int64_t layer,
                            Border border) {
    context->saved_data["gather"] = static_cast<int64_t>(reinterpret_cast<intptr_t>(gather));
    context->saved_data["layer"] = layer;
    context->saved_data["border"] = static_cast<int64_t>(border);
    cross(gather, layer, border == Border::kBefore);
    return x.view_as(x);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    auto* const gather = reinterpret_cast<LayerGather*>(static_cast<intptr_t>(context->saved_data["gather"].toInt()));
    const auto border = static_cast<Border>(context->saved_data["border"].toInt());
    cross(gather, context->saved_data["layer"].toInt(), border == Border::kAfter);
    return {grads[0], {}, {}, {}};
  }
};

at::Tensor cross_border(LayerGather* gather, int64_t layer, const at::Tensor& x, Border border) {
  if (gather == nullptr || !gather->is_active()) return x;
  if (at::GradMode::is_enabled() && x.requires_grad()) return LayerBorder::apply(x, gather, layer, border);
  cross(gather, layer, border == Border::kBefore);
  return x;
}

}  // namespace

at::Tensor before_layer(LayerGather* gather, int64_t layer, const at::Tensor& x) {
  return cross_border(gather, layer, x, Border::kBefore);
}
at::Tensor after_layer(LayerGather* gather, int64_t layer, const at::Tensor& x) {
  return cross_border(gather, layer, x, Border::kAfter);
}

}  // namespace espalier::dist
