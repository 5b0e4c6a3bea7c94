#include "kernels/embedding.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "kernels/captured.h"
#include "kernels/internal/row_dispatch.h"
#include "tensor/saved.h"

namespace espalier::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// One cache line of fp32: two threads never add to the same line.
constexpr int64_t kColumnsPerPart = 16;
constexpr int64_t kMinElementsPerThread = 1 << 14;

// Result [s, b, h].
at::Tensor gather_rows(const at::Tensor& ids, const at::Tensor& weight) {
  const int64_t num_samples = ids.size(0), length = ids.size(1), columns = weight.size(1);
  at::Tensor y = at::empty({length, num_samples, columns}, weight.options());
  const int64_t* id = ids.const_data_ptr<int64_t>();
  const size_t row_bytes = static_cast<size_t>(columns) * weight.element_size();
  const char* from = static_cast<const char*>(weight.const_data_ptr());
  char* to = static_cast<char*>(y.data_ptr());
  const int64_t grain = std::max<int64_t>(1, kMinElementsPerThread / std::max<int64_t>(1, columns));
  at::parallel_for(0, length * num_samples, grain, [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
      const int64_t source = id[row % num_samples * length + row / num_samples];
      std::memcpy(to + row * row_bytes, from + source * row_bytes, row_bytes);
    }
  });
  return y;
}

// grad[id] += dy of every token, in the order of dy's rows: threads divide the columns, so nothing else can happen.
void scatter_add(const at::Tensor& ids, const at::Tensor& dy, const at::Tensor& grad) {
  const int64_t num_samples = ids.size(0), length = ids.size(1), columns = grad.size(1);
  const int64_t* id = ids.const_data_ptr<int64_t>();
  const char* from = static_cast<const char*>(dy.const_data_ptr());
  const int64_t size = dy.element_size();
  float* to = grad.data_ptr<float>();
  const auto add_to_row = row_kernels(dy.scalar_type()).add_to_row;
  const int64_t num_rows = length * num_samples, num_parts = (columns + kColumnsPerPart - 1) / kColumnsPerPart;
  const int64_t grain = std::max<int64_t>(4, kMinElementsPerThread / std::max<int64_t>(1, num_rows * kColumnsPerPart));
  at::parallel_for(0, num_parts, grain, [&](int64_t first_part, int64_t last_part) {
    const int64_t first = first_part * kColumnsPerPart, count = std::min(columns, last_part * kColumnsPerPart) - first;
    for (int64_t row = 0; row < num_rows; ++row) {
      const int64_t target = id[row % num_samples * length + row / num_samples];
      add_to_row(to + target * columns + first, from + (row * columns + first) * size, count);
    }
  });
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
    state.queue->push(weight, [&weight, ids, dy = grads[0].contiguous()] { scatter_add(ids, dy, weight.grad); });
    return {{}, {}, {}};
  }
};

}  // namespace

at::Tensor embedding(const at::Tensor& ids, tensor::Param& weight, tensor::GradQueue& queue) {
  ESPALIER_CHECK(ids.dim() == 2 && ids.is_contiguous() && ids.scalar_type() == at::kLong,
                 "ids must be [b, s] int64, are ", ids.sizes(), " ", ids.scalar_type());
  ESPALIER_CHECK(weight.value.dim() == 2 && weight.value.is_contiguous(), "weight ", weight.value.sizes());
  if (!at::GradMode::is_enabled() || !weight.grad.defined()) return gather_rows(ids, weight.value);
  const at::Tensor anchor = at::empty({0}, at::TensorOptions().dtype(at::kFloat)).requires_grad_();
  return Embedding::apply(anchor, ids, Embedding::State{&weight, &queue});
}

}  // namespace espalier::kernels
