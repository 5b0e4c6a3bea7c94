#include "kernels/rotary.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/error.h"
#include "base/work_profile.h"
#include "kernels/captured.h"
#include "kernels/device_ops.h"
#include "kernels/internal/row_dispatch.h"
#include "tensor/saved.h"

namespace espalier::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Turn {
  RotaryTable table;
  Heads heads;
  int64_t head_size;
  bool interleaved;
};

// Turns by the angles of the table, or back: the transpose, and so the gradient.
at::Tensor turned(const at::Tensor& qkv, const at::Tensor& positions, const Turn& turn, bool back) {
  const WorkSpan span(Work::kRotary, "turn");
  at::Tensor result = at::empty_like(qkv);
  const RotaryRows args{.x = qkv.const_data_ptr(),
                        .y = result.data_ptr(),
                        .cosine = turn.table.cosine.const_data_ptr<float>(),
                        .sine = turn.table.sine.const_data_ptr<float>(),
                        .sine_sign = back ? -1.0f : 1.0f,
                        .positions = positions.const_data_ptr<int64_t>(),
                        .num_samples = qkv.size(1),
                        .length = qkv.size(0),
                        .groups = turn.heads.groups,
                        .queries = turn.heads.per_group(),
                        .head_size = turn.head_size,
                        .rotary_size = 2 * turn.table.cosine.size(1)};
  if (const DeviceOps* device = device_ops(qkv)) {
    device->rotate(qkv.scalar_type(), args, turn.interleaved);
    return result;
  }
  const TypedRowKernels& kernels = row_kernels(qkv.scalar_type());
  const auto kernel = turn.interleaved ? kernels.rotate_pairs : kernels.rotate_halves;
  for_each_block(RowBlocks(qkv.size(0) * qkv.size(1)), qkv.size(2),
                 [&](int64_t, int64_t first, int64_t last) { kernel(args, first, last); });
  return result;
}

struct Rotary : torch::autograd::Function<Rotary> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& qkv, const at::Tensor& positions,
                            const Turn& turn) {
    tensor::save_for_backward(context, "rotary", {{"positions", positions}});
    capture_state(context, turn);
    return turned(qkv, positions, turn, false);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const at::Tensor positions = context->get_saved_variables()[0];
    return {turned(grads[0].contiguous(), positions, captured_state<Turn>(context), true), {}, {}};
  }
};

void check_table(const RotaryTable& table, int64_t head_size) {
  const at::Tensor &cosine = table.cosine, &sine = table.sine;
  ESPALIER_CHECK(cosine.dim() == 2 && sine.sizes() == cosine.sizes() && cosine.is_contiguous() &&
                     sine.is_contiguous() && cosine.scalar_type() == at::kFloat && sine.scalar_type() == at::kFloat,
                 "cosines ", cosine.sizes(), " ", cosine.scalar_type(), ", sines ", sine.sizes(), " ",
                 sine.scalar_type());
  ESPALIER_CHECK(2 * cosine.size(1) <= std::min(head_size, kMaxRotarySize), "turns ", 2 * cosine.size(1),
                 " channels of heads of ", head_size, "; at most ", kMaxRotarySize);
}

void check_positions(const at::Tensor& positions, const at::Tensor& qkv, int64_t num_positions) {
  ESPALIER_CHECK(positions.scalar_type() == at::kLong && positions.is_contiguous() && positions.dim() == 2 &&
                     positions.size(0) == qkv.size(1) && positions.size(1) == qkv.size(0),
                 "positions ", positions.sizes(), " ", positions.scalar_type(), " of qkv ", qkv.sizes());
  if (!positions.is_cpu()) return;  // to look at them would make this process wait for the device
  const int64_t* const position = positions.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < positions.numel(); ++i) {
    ESPALIER_CHECK(position[i] >= 0 && position[i] < num_positions, "position ", position[i], " in a table of ",
                   num_positions);
  }
}

}  // namespace

at::Tensor rotary(const at::Tensor& qkv, const RotaryTable& table, const at::Tensor& positions, Heads heads,
                  int64_t head_size, bool interleaved) {
  check_heads(heads);
  ESPALIER_CHECK(qkv.dim() == 3 && qkv.is_contiguous() && qkv.size(2) == heads.columns(head_size), "qkv ", qkv.sizes(),
                 " strides ", qkv.strides(), " for ", heads.queries, " heads in ", heads.groups, " groups of size ",
                 head_size);
  check_table(table, head_size);
  check_positions(positions, qkv, table.cosine.size(0));
  const Turn turn{table, heads, head_size, interleaved};
  if (!builds_graph(qkv)) return turned(qkv, positions, turn, false);
  return Rotary::apply(qkv, positions, turn);
}

}  // namespace espalier::kernels
