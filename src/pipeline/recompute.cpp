#include "pipeline/recompute.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "tensor/saved.h"

namespace espalier::pipeline {
namespace {

using plan::LayerRange;

at::Tensor run_all(const LayerRange& range, at::Tensor x, const LayerFunction& run,
                   const std::vector<at::Tensor>& beside) {
  for (int64_t layer = range.begin; layer < range.end; ++layer) x = run(layer, x, beside);
  return x;
}

at::Tensor as_leaf(const at::Tensor& tensor) { return tensor.detach().requires_grad_(true); }

// Of the elements of x, in row-major order.
at::Tensor own_share(const at::Tensor& x, const dist::Group& keepers) {
  if (keepers.size() == 1) return x;
  ESPALIER_CHECK(x.numel() % keepers.size() == 0, x.sizes(), " over ", keepers.size(), " ranks");
  const int64_t share = x.numel() / keepers.size();
  return x.contiguous().view({-1}).narrow(0, keepers.rank() * share, share).clone();
}

struct Recompute : torch::autograd::Function<Recompute> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, LayerRange range,
                            std::shared_ptr<LayerFunction> run, const dist::Group* keepers, at::TensorList beside) {
    tensor::save_for_backward(context, "recompute", {{"input", own_share(x, *keepers)}});
    context->saved_data["beside"] = beside;
    context->saved_data["shape"] = x.sizes().vec();
    context->saved_data["keepers"] = static_cast<int64_t>(reinterpret_cast<intptr_t>(keepers));
    const at::NoGradGuard no_grad;
    at::Tensor result = run_all(range, x, *run, beside.vec());
    context->saved_data["begin"] = range.begin;
    context->saved_data["end"] = range.end;
    context->saved_data["run"] = c10::IValue::make_capsule(c10::make_intrusive<Holder>(std::move(run)));
    return result;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const LayerRange range{context->saved_data["begin"].toInt(), context->saved_data["end"].toInt(), true};
    const auto holder = c10::static_intrusive_pointer_cast<Holder>(context->saved_data["run"].toCapsule());
    const auto* keepers =
        reinterpret_cast<const dist::Group*>(static_cast<intptr_t>(context->saved_data["keepers"].toInt()));
    const at::Tensor kept = context->get_saved_variables()[0].detach();
    const at::Tensor x = as_leaf(keepers->all_gather(kept).view(context->saved_data["shape"].toIntVector()));
    std::vector<at::Tensor> beside;
    for (const at::Tensor& tensor : context->saved_data["beside"].toTensorVector()) beside.push_back(as_leaf(tensor));
    const at::AutoGradMode with_graph(true);
    const at::Tensor result = run_all(range, x, *holder->run, beside);
    torch::autograd::backward({result}, {gradients[0]});
    torch::autograd::variable_list inputs = {x.grad(), {}, {}, {}};
    for (const at::Tensor& tensor : beside) inputs.push_back(tensor.grad());
    return inputs;
  }

  struct Holder : torch::CustomClassHolder {
    explicit Holder(std::shared_ptr<LayerFunction> function) : run(std::move(function)) {}
    std::shared_ptr<LayerFunction> run;
  };
};

}  // namespace

at::Tensor run_layers(const LayerRange& range, const at::Tensor& x, const LayerFunction& run,
                      const dist::Group& keepers, const std::vector<at::Tensor>& beside) {
  if (!range.recompute || !at::GradMode::is_enabled()) return run_all(range, x, run, beside);
  return Recompute::apply(x, range, std::make_shared<LayerFunction>(run), &keepers, at::TensorList(beside));
}

}  // namespace espalier::pipeline
