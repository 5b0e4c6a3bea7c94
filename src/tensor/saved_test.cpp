#include "tensor/saved.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <string>

namespace espalier::tensor {
namespace saved_test {

// y = x * 3, keeping x twice under two names.
struct Triple : torch::autograd::Function<Triple> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    save_for_backward(context, "triple", {{"x", x}, {"doubled", x * 2}});
    return x * 3;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const torch::autograd::variable_list saved = context->get_saved_variables();
    EXPECT_EQ(saved.size(), 2u);
    EXPECT_TRUE(at::equal(saved[0] * 2, saved[1]));
    return {grads[0] * 3};
  }
};

TEST(Saved, TensorsComeBackInOrder) {
  at::Tensor x = at::arange(7, at::kFloat).requires_grad_();
  Triple::apply(x).sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), at::full({7}, 3.0f)));
}

TEST(Saved, ObserversSeeNamesAndNest) {
  const at::Tensor x = at::arange(7, at::kFloat).requires_grad_();
  std::string outer, inner;
  const auto note = [](std::string& to) {
    return [&to](const char* op, const SavedTensor& saved) {
      to += std::string(op) + "." + saved.name + ":" + std::to_string(saved.tensor.nbytes()) + " ";
    };
  };
  Triple::apply(x);
  {
    const ObserveSaved observe(note(outer));
    Triple::apply(x);
    {
      const ObserveSaved nested(note(inner));
      Triple::apply(x);
    }
    Triple::apply(x);
  }
  Triple::apply(x);
  EXPECT_EQ(inner, "triple.x:28 triple.doubled:28 ");
  EXPECT_EQ(outer, inner + inner);
}

}  // namespace saved_test
}  // namespace espalier::tensor
