#include "pipeline/recompute.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "base/error.h"
#include "tensor/saved.h"

namespace espalier::pipeline {
namespace {

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

std::vector<LayerRange> RecomputePlan::ranges(int64_t total, int64_t before) const {
  std::vector<LayerRange> ranges;
  const int64_t alone = std::clamp<int64_t>(num_layers - before, 0, total);  // of kBlock
  switch (method) {
    case Method::kNone: ranges.push_back({0, total, false}); break;
    case Method::kUniform:
      for (int64_t begin = 0; begin < total; begin += num_layers)
        ranges.push_back({begin, std::min(total, begin + num_layers), true});
      break;
    case Method::kBlock:
      for (int64_t layer = 0; layer < alone; ++layer) ranges.push_back({layer, layer + 1, true});
      if (alone < total) ranges.push_back({alone, total, false});
      break;
  }
  return ranges;
}

at::Tensor run_layers(const LayerRange& range, const at::Tensor& x, const LayerFunction& run,
                      const dist::Group& keepers, const std::vector<at::Tensor>& beside) {
  if (!range.recompute || !at::GradMode::is_enabled()) return run_all(range, x, run, beside);
  return Recompute::apply(x, range, std::make_shared<LayerFunction>(run), &keepers, at::TensorList(beside));
}

}  // namespace espalier::pipeline
