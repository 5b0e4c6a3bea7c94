#include "kernels/qk_norm.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "kernels/captured.h"
#include "kernels/device_ops.h"
#include "kernels/internal/row_dispatch.h"
#include "tensor/saved.h"

namespace espalier::kernels {
namespace {

using tensor::Param;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// A row is a group of heads of a token.
int64_t num_rows(const at::Tensor& qkv, Heads heads) { return qkv.size(0) * qkv.size(1) * heads.groups; }
int64_t row_columns(const at::Tensor& qkv, Heads heads) { return qkv.size(2) / heads.groups; }

struct NormalizedHeads {
  at::Tensor qkv;   // as the input
  at::Tensor rstd;  // [rows, query heads of a group, then the key head] fp32
};

NormalizedHeads forward_rows(const at::Tensor& qkv, const Param& query_weight, const Param& key_weight, Heads heads,
                             double epsilon) {
  const int64_t rows = num_rows(qkv, heads);
  NormalizedHeads result{at::empty_like(qkv),
                         at::empty({rows, heads.per_group() + 1}, qkv.options().dtype(at::kFloat))};
  const QkNormForward args{.x = qkv.const_data_ptr(),
                           .query_weight = query_weight.value.const_data_ptr(),
                           .key_weight = key_weight.value.const_data_ptr(),
                           .y = result.qkv.data_ptr(),
                           .rstd = result.rstd.data_ptr<float>(),
                           .queries = heads.per_group(),
                           .head_size = query_weight.value.size(0),
                           .epsilon = static_cast<float>(epsilon)};
  if (const DeviceOps* device = device_ops(qkv)) {
    device->qk_norm_forward(qkv.scalar_type(), args, rows);
    return result;
  }
  const TypedRowKernels& kernels = row_kernels(qkv.scalar_type());
  for_each_block(RowBlocks(rows), row_columns(qkv, heads),
                 [&](int64_t, int64_t first, int64_t last) { kernels.qk_norm_forward(args, first, last); });
  return result;
}

struct QkNorm : torch::autograd::Function<QkNorm> {
  struct State {
    Param *query_weight, *key_weight;
    Heads heads;
    tensor::GradQueue* queue;
  };

  static at::Tensor forward(AutogradContext* context, const at::Tensor& qkv, State state, double epsilon) {
    NormalizedHeads result = forward_rows(qkv, *state.query_weight, *state.key_weight, state.heads, epsilon);
    tensor::save_for_backward(context, "qk_norm", {{"qkv", qkv}, {"rstd", result.rstd}});
    capture_state(context, state);
    return result.qkv;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const State& state = captured_state<State>(context);
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& qkv = saved[0];
    const at::Tensor d_result = grads[0].contiguous();
    at::Tensor d_qkv = at::empty_like(qkv);
    const int64_t head_size = state.query_weight->value.size(0);
    const QkNormBackward args{.x = qkv.const_data_ptr(),
                              .query_weight = state.query_weight->value.const_data_ptr(),
                              .key_weight = state.key_weight->value.const_data_ptr(),
                              .dy = d_result.const_data_ptr(),
                              .dx = d_qkv.data_ptr(),
                              .rstd = saved[1].const_data_ptr<float>(),
                              .queries = state.heads.per_group(),
                              .head_size = head_size};
    if (const DeviceOps* device = device_ops(qkv)) {
      const DeviceOps::HeadGradients gradients =
          device->qk_norm_backward(qkv.scalar_type(), args, num_rows(qkv, state.heads));
      push_grad(*state.queue, *state.query_weight, gradients.query);
      push_grad(*state.queue, *state.key_weight, gradients.key);
      return {d_qkv, {}, {}};
    }
    const RowBlocks blocks(num_rows(qkv, state.heads));
    ColumnSums sums(blocks, 2, head_size);
    const TypedRowKernels& kernels = row_kernels(qkv.scalar_type());
    for_each_block(blocks, row_columns(qkv, state.heads), [&](int64_t block, int64_t first, int64_t last) {
      kernels.qk_norm_backward(args, first, last, sums.partial(block, 0), sums.partial(block, 1));
    });
    const at::Tensor total = sums.total();
    push_grad(*state.queue, *state.query_weight, total[0]);
    push_grad(*state.queue, *state.key_weight, total[1]);
    return {d_qkv, {}, {}};
  }
};

}  // namespace

at::Tensor qk_norm(const at::Tensor& qkv, Param& query_weight, Param& key_weight, Heads heads, double epsilon,
                   tensor::GradQueue& queue) {
  check_heads(heads);
  const at::Tensor &query = query_weight.value, &key = key_weight.value;
  ESPALIER_CHECK(query.dim() == 1 && key.sizes() == query.sizes(), "weight of queries ", query.sizes(), ", of keys ",
                 key.sizes());
  ESPALIER_CHECK(qkv.dim() == 3 && qkv.is_contiguous() && qkv.size(2) == heads.columns(query.size(0)), "qkv ",
                 qkv.sizes(), " strides ", qkv.strides(), " for ", heads.queries, " heads in ", heads.groups,
                 " groups of size ", query.size(0));
  ESPALIER_CHECK(qkv.scalar_type() == query.scalar_type() && qkv.scalar_type() == key.scalar_type(), "qkv ",
                 qkv.scalar_type(), ", weights ", query.scalar_type(), " and ", key.scalar_type());
  if (!builds_graph(qkv)) return forward_rows(qkv, query_weight, key_weight, heads, epsilon).qkv;
  return QkNorm::apply(qkv, QkNorm::State{&query_weight, &key_weight, heads, &queue}, epsilon);
}

}  // namespace espalier::kernels
