#include "kernels/embedding.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>

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

// One cache line of fp32: two threads never add to the same line.
constexpr int64_t kColumnsPerPart = 16;
constexpr int64_t kMinEmbeddedPerThread = 1 << 14;

// Rows of the table of every token, in the order of the result's rows: [position][sample].
struct TokenRows {
  TokenRows(const at::Tensor& ids, const at::Tensor& table, int64_t first_row)
      : id(ids.const_data_ptr<int64_t>()),
        num_samples(ids.size(0)),
        length(ids.size(1)),
        first_row(first_row),
        num_rows(table.size(0)) {}
  // -1: the token's row is not in the table.
  int64_t at(int64_t token) const {
    const int64_t row = id[token % num_samples * length + token / num_samples] - first_row;
    return row >= 0 && row < num_rows ? row : -1;
  }

  const int64_t* id;
  int64_t num_samples, length, first_row, num_rows;
};

// Result [s, b, h].
at::Tensor gather_rows(const at::Tensor& ids, const at::Tensor& weight, int64_t first_row) {
  const WorkSpan span(Work::kEmbedding, "forward");
  if (const DeviceOps* device = device_ops(weight)) return device->embedding_forward(ids, weight, first_row);
  const int64_t num_samples = ids.size(0), length = ids.size(1), columns = weight.size(1);
  at::Tensor y = at::empty({length, num_samples, columns}, weight.options());
  const TokenRows rows(ids, weight, first_row);
  const size_t row_bytes = static_cast<size_t>(columns) * weight.element_size();
  const char* from = static_cast<const char*>(weight.const_data_ptr());
  char* to = static_cast<char*>(y.data_ptr());
  const int64_t grain = std::max<int64_t>(1, kMinEmbeddedPerThread / std::max<int64_t>(1, columns));
  at::parallel_for(0, length * num_samples, grain, [&](int64_t first, int64_t last) {
    for (int64_t token = first; token < last; ++token) {
      const int64_t row = rows.at(token);
      if (row >= 0)
        std::memcpy(to + token * row_bytes, from + row * row_bytes, row_bytes);
      else
        std::memset(to + token * row_bytes, 0, row_bytes);
    }
  });
  return y;
}

// grad[id] += dy of every token, in the order of dy's rows: threads divide the columns, so nothing else can happen.
void scatter_add(const at::Tensor& ids, const at::Tensor& dy, const at::Tensor& grad, int64_t first_row) {
  const WorkSpan span(Work::kEmbedding, "backward");
  if (const DeviceOps* device = device_ops(grad)) return device->embedding_backward(ids, dy, grad, first_row);
  const int64_t num_tokens = ids.numel(), columns = grad.size(1);
  const TokenRows rows(ids, grad, first_row);
  const char* from = static_cast<const char*>(dy.const_data_ptr());
  const int64_t size = dy.element_size();
  float* to = grad.data_ptr<float>();
  const auto add_to_row = row_kernels(dy.scalar_type()).add_to_row;
  const int64_t num_parts = (columns + kColumnsPerPart - 1) / kColumnsPerPart;
  const int64_t grain =
      std::max<int64_t>(4, kMinEmbeddedPerThread / std::max<int64_t>(1, num_tokens * kColumnsPerPart));
  at::parallel_for(0, num_parts, grain, [&](int64_t first_part, int64_t last_part) {
    const int64_t first = first_part * kColumnsPerPart, count = std::min(columns, last_part * kColumnsPerPart) - first;
    for (int64_t token = 0; token < num_tokens; ++token) {
      const int64_t row = rows.at(token);
      if (row >= 0) add_to_row(to + row * columns + first, from + (token * columns + first) * size, count);
    }
  });
}

struct Embedding : torch::autograd::Function<Embedding> {
  struct State {
    tensor::Param* weight;
    tensor::GradQueue* queue;
    int64_t first_row;
  };

  // The anchor exists only to require a gradient: autograd builds no graph for ids alone.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& /*anchor*/, const at::Tensor& ids,
                            State state) {
    tensor::save_for_backward(context, "embedding", {{"ids", ids}});
    capture_state(context, state);
    return gather_rows(ids, state.weight->value, state.first_row);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const State& state = captured_state<State>(context);
    const at::Tensor ids = context->get_saved_variables()[0];
    tensor::Param& weight = *state.weight;
    state.queue->push(weight, [&weight, ids, dy = grads[0].contiguous(), first_row = state.first_row] {
      scatter_add(ids, dy, weight.grad, first_row);
    });
    return {{}, {}, {}};
  }
};

at::Tensor gather_columns(const at::Tensor& ids, const at::Tensor& weight) {
  return weight.index_select(0, ids).to(at::kFloat).t().contiguous();
}

struct EmbeddingColumns : torch::autograd::Function<EmbeddingColumns> {
  struct State {
    tensor::Param* weight;
    tensor::GradQueue* queue;
    at::Tensor ids;  // [1, n]; not a saved variable: backward may run more than once
  };

  static at::Tensor forward(AutogradContext* context, const at::Tensor& /*anchor*/, const State& state) {
    capture_state(context, state);
    return gather_columns(state.ids.select(0, 0), state.weight->value);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const State& state = captured_state<State>(context);
    tensor::Param& weight = *state.weight;
    const at::Tensor dy = grads[0].t().contiguous().unsqueeze(1);  // [n, 1, h]
    state.queue->push(weight, [&weight, ids = state.ids, dy] { scatter_add(ids, dy, weight.grad, 0); });
    return {{}, {}};
  }
};

at::Tensor requires_gradient() { return at::empty({0}, at::TensorOptions().dtype(at::kFloat)).requires_grad_(); }

}  // namespace

at::Tensor embedding(const at::Tensor& ids, tensor::Param& weight, tensor::GradQueue& queue, int64_t first_row) {
  ESPALIER_CHECK(ids.dim() == 2 && ids.is_contiguous() && ids.scalar_type() == at::kLong,
                 "ids must be [b, s] int64, are ", ids.sizes(), " ", ids.scalar_type());
  ESPALIER_CHECK(weight.value.dim() == 2 && weight.value.is_contiguous(), "weight ", weight.value.sizes());
  if (!at::GradMode::is_enabled() || !weight.has_grad()) return gather_rows(ids, weight.value, first_row);
  return Embedding::apply(requires_gradient(), ids, Embedding::State{&weight, &queue, first_row});
}

at::Tensor embedding_columns(const at::Tensor& ids, tensor::Param& weight, tensor::GradQueue& queue) {
  ESPALIER_CHECK(ids.dim() == 1 && ids.is_contiguous() && ids.scalar_type() == at::kLong, "ids must be [n] int64, are ",
                 ids.sizes(), " ", ids.scalar_type());
  ESPALIER_CHECK(weight.value.dim() == 2 && weight.value.is_contiguous(), "weight ", weight.value.sizes());
  if (!at::GradMode::is_enabled() || !weight.has_grad()) return gather_columns(ids, weight.value);
  return EmbeddingColumns::apply(requires_gradient(), EmbeddingColumns::State{&weight, &queue, ids.unsqueeze(0)});
}

}  // namespace espalier::kernels
