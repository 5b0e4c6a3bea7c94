#include "dist/collectives.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

namespace espalier::dist {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

enum class Step { kIdentity, kSum, kGather, kSumAndSplit, kToHeads, kToSequence };

at::Tensor to_heads(const at::Tensor& x, const Group& group) {
  const int64_t n = group.size(), s = x.size(0), b = x.size(1), width = x.size(2) / n;
  const at::Tensor parts = x.view({s, b, n, width}).permute({2, 0, 1, 3}).contiguous();  // [n, s/n, b, heads/n]
  return group.all_to_all(parts).view({n * s, b, width});
}

at::Tensor to_sequence(const at::Tensor& x, const Group& group) {
  const int64_t n = group.size(), s = x.size(0) / n, b = x.size(1), width = x.size(2);
  const at::Tensor parts = group.all_to_all(x.contiguous().view({n, s, b, width}));  // entry r: heads of rank r
  return parts.permute({1, 2, 0, 3}).contiguous().view({s, b, n * width});
}

at::Tensor run(Step step, const at::Tensor& x, const Group& group) {
  switch (step) {
    case Step::kIdentity: return x.view_as(x);
    case Step::kSum: {
      const at::Tensor sum = x.contiguous().clone();
      group.all_reduce(sum);
      return sum;
    }
    case Step::kGather: return group.all_gather(x.contiguous());
    case Step::kSumAndSplit: return group.reduce_scatter(x.contiguous());
    case Step::kToHeads: return to_heads(x.contiguous(), group);
    case Step::kToSequence: return to_sequence(x, group);
  }
  return {};
}

Step backward_of(Step step) {
  switch (step) {
    case Step::kIdentity: return Step::kSum;
    case Step::kSum: return Step::kIdentity;
    case Step::kGather: return Step::kSumAndSplit;
    case Step::kSumAndSplit: return Step::kGather;
    case Step::kToHeads: return Step::kToSequence;
    case Step::kToSequence: return Step::kToHeads;
  }
  return Step::kIdentity;
}

// The group outlives the graph: it belongs to the run's Grid.
struct Collective : torch::autograd::Function<Collective> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, int64_t step, const Group* group) {
    context->saved_data["step"] = step;
    context->saved_data["group"] = static_cast<int64_t>(reinterpret_cast<intptr_t>(group));
    return run(static_cast<Step>(step), x, *group);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto step = static_cast<Step>(context->saved_data["step"].toInt());
    const auto* group = reinterpret_cast<const Group*>(static_cast<intptr_t>(context->saved_data["group"].toInt()));
    return {run(backward_of(step), grads[0], *group), {}, {}};
  }
};

at::Tensor apply(Step step, const at::Tensor& x, const Group& group) {
  if (group.size() == 1) return x;
  return Collective::apply(x, static_cast<int64_t>(step), &group);
}

}  // namespace

at::Tensor copy_to_ranks(const at::Tensor& x, const Group& group) { return apply(Step::kIdentity, x, group); }
at::Tensor sum_over_ranks(const at::Tensor& x, const Group& group) { return apply(Step::kSum, x, group); }
at::Tensor gather_sequence(const at::Tensor& x, const Group& group) { return apply(Step::kGather, x, group); }
at::Tensor sum_and_split_sequence(const at::Tensor& x, const Group& group) {
  return apply(Step::kSumAndSplit, x, group);
}
at::Tensor sequence_to_heads(const at::Tensor& x, const Group& group) { return apply(Step::kToHeads, x, group); }
at::Tensor heads_to_sequence(const at::Tensor& x, const Group& group) { return apply(Step::kToSequence, x, group); }

}  // namespace espalier::dist
