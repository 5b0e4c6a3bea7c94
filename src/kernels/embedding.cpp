#include "kernels/embedding.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "kernels/captured.h"
#include "tensor/saved.h"

namespace espalier::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor gather_rows(const at::Tensor& ids, const at::Tensor& weight) {
  return weight.index_select(0, ids.t().reshape({-1})).view({ids.size(1), ids.size(0), weight.size(1)});
}

struct Embedding : torch::autograd::Function<Embedding> {
  struct State {
    tensor::Param* weight;
    tensor::GradQueue* queue;
  };

  // `anchor` is there only to require a gradient: autograd builds no graph for ids alone.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& anchor, const at::Tensor& ids, State state) {
    tensor::save_for_backward(context, "embedding", {{"ids", ids}});
    capture_state(context, state);
    return gather_rows(ids, state.weight->value);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const State& state = captured_state<State>(context);
    const at::Tensor ids = context->get_saved_variables()[0];
    tensor::Param& weight = *state.weight;
    state.queue->push(weight, [&weight, ids, dy = grads[0]] {
      weight.grad.index_add_(0, ids.t().reshape({-1}), dy.reshape({-1, dy.size(2)}).to(at::kFloat));
    });
    return {{}, {}, {}};
  }
};

}  // namespace

at::Tensor embedding(const at::Tensor& ids, tensor::Param& weight, tensor::GradQueue& queue) {
  ESPALIER_CHECK(ids.dim() == 2 && ids.scalar_type() == at::kLong, "ids must be [b, s] int64, are ", ids.sizes());
  if (!at::GradMode::is_enabled() || !weight.grad.defined()) return gather_rows(ids, weight.value);
  const at::Tensor anchor = at::empty({0}, at::TensorOptions().dtype(at::kFloat)).requires_grad_();
  return Embedding::apply(anchor, ids, Embedding::State{&weight, &queue});
}

}  // namespace espalier::kernels
