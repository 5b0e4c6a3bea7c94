#include "kernels/embedding.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/error.h"
#include "kernels/reference_test.h"
#include "tensor/saved.h"

namespace espalier::kernels {
namespace embedding_test {

using reference::random;
using reference::TestParam;

at::Tensor ids_of(int64_t samples, int64_t length, int64_t rows) {
  at::Generator generator = at::detail::createCPUGenerator(5);
  return at::randint(0, rows, {samples, length}, generator, at::kLong);
}

class EmbeddingTest : public testing::TestWithParam<at::ScalarType> {};

TEST_P(EmbeddingTest, TakesRowsAndAddsGradientsInTokenOrder) {
  const at::ScalarType type = GetParam();
  for (const int64_t hidden : {1, 7, 33, 1023}) {
    TestParam weight(random({11, hidden}, type, 1));
    tensor::GradQueue queue;
    at::Tensor expected = weight.param.grad.clone();
    for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
      const at::Tensor ids = ids_of(3, 33, 11);
      const at::Tensor y = embedding(ids, weight.param, queue), dy = random({33, 3, hidden}, type, 2 + micro_batch);
      ASSERT_TRUE(y.requires_grad());
      y.backward(dy);
      for (int64_t position = 0; position < 33; ++position) {
        for (int64_t row = 0; row < 3; ++row) {
          const int64_t id = ids[row][position].item<int64_t>();
          ASSERT_TRUE(at::equal(y.detach()[position][row], weight.param.value[id]));
          expected[id] += dy[position][row].to(at::kFloat);
        }
      }
    }
    EXPECT_TRUE(at::equal(weight.param.grad, expected)) << hidden;  // to the bit: one order of addition
  }
}

TEST(Embedding, NumberOfThreadsAndTimeOfTheWorkChangeNoBit) {
  const int threads_before = at::get_num_threads();
  at::Tensor grads[4];
  for (int variant = 0; variant < 4; ++variant) {
    at::set_num_threads(1 + variant % 3);
    TestParam weight(random({5, 300}, at::kBFloat16, 1));
    tensor::GradQueue queue;
    if (variant == 3) queue.set_mode(tensor::GradQueue::Mode::kDeferred);
    embedding(ids_of(4, 100, 5), weight.param, queue).backward(random({100, 4, 300}, at::kBFloat16, 2));
    EXPECT_EQ(queue.num_pending(), variant == 3 ? 1u : 0u);
    queue.drain();
    grads[variant] = weight.param.grad;
  }
  at::set_num_threads(threads_before);
  for (int variant = 1; variant < 4; ++variant) EXPECT_TRUE(at::equal(grads[0], grads[variant])) << variant;
}

TEST(Embedding, GradientThatIsNotContiguousIsTaken) {
  TestParam weight(random({5, 7}, at::kFloat, 1));
  tensor::GradQueue queue;
  embedding(ids_of(2, 3, 5), weight.param, queue).sum().backward();  // an expanded scalar
  EXPECT_EQ(weight.added().sum().item<double>(), 2 * 3 * 7);
}

TEST(Embedding, BuildsNoGraphWithoutGradients) {
  TestParam weight(random({5, 7}, at::kFloat, 1));
  tensor::GradQueue queue;
  bool kept = false;
  const tensor::ObserveSaved observe([&](const char*, const tensor::SavedTensor&) { kept = true; });
  tensor::Param frozen{.spec = nullptr, .value = weight.param.value, .grad = {}};
  EXPECT_FALSE(embedding(ids_of(2, 3, 5), frozen, queue).requires_grad());
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(embedding(ids_of(2, 3, 5), weight.param, queue).requires_grad());
  EXPECT_FALSE(kept);
}

TEST(Embedding, IdsOfAnotherTypeOrShapeAreABug) {
  TestParam weight(random({5, 7}, at::kFloat, 1));
  tensor::GradQueue queue;
  EXPECT_THROW(embedding(at::zeros({2, 3}, at::kInt), weight.param, queue), InternalError);
  EXPECT_THROW(embedding(at::zeros({6}, at::kLong), weight.param, queue), InternalError);
}

TEST_P(EmbeddingTest, ColumnsAreTheRowsInFp32AndTheirGradientIsNotRounded) {
  for (const int64_t hidden : {1, 7, 33}) {
    for (const int64_t count : {1, 65, 300}) {
      TestParam weight(random({11, hidden}, GetParam(), 1));
      tensor::GradQueue queue;
      const at::Tensor ids = ids_of(1, count, 11).select(0, 0);
      const at::Tensor y = embedding_columns(ids, weight.param, queue), dy = random({hidden, count}, at::kFloat, 2);
      EXPECT_TRUE(y.is_contiguous());
      EXPECT_TRUE(at::equal(y.detach(), weight.param.value.to(at::kFloat).index_select(0, ids).t()));
      at::Tensor expected = weight.param.grad.clone();
      y.backward(dy);
      for (int64_t i = 0; i < count; ++i) expected[ids[i].item<int64_t>()] += dy.select(1, i);
      EXPECT_TRUE(at::equal(weight.param.grad, expected)) << hidden << " " << count;
    }
  }
}

// As layers do that run again for their backward pass.
TEST(Embedding, ColumnsTakeSeveralBackwardPasses) {
  TestParam weight(random({5, 3}, at::kFloat, 1));
  tensor::GradQueue queue;
  const at::Tensor ids = at::tensor({0, 4, 4, 1}, at::kLong);
  const at::Tensor y = embedding_columns(ids, weight.param, queue);
  (y * 1).sum().backward();
  (y * 2).sum().backward();
  EXPECT_TRUE(at::equal(weight.added(), at::tensor({3, 3, 0, 0, 6}, at::kDouble).view({5, 1}).expand({5, 3})));
}

TEST(Embedding, ColumnsBuildNoGraphWithoutGradients) {
  TestParam weight(random({5, 7}, at::kFloat, 1));
  tensor::GradQueue queue;
  const at::Tensor ids = at::zeros({3}, at::kLong);
  tensor::Param frozen{.spec = nullptr, .value = weight.param.value, .grad = {}};
  EXPECT_FALSE(embedding_columns(ids, frozen, queue).requires_grad());
  EXPECT_THROW(embedding_columns(ids.view({1, 3}), weight.param, queue), InternalError);
  EXPECT_THROW(embedding_columns(ids.to(at::kInt), weight.param, queue), InternalError);
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(embedding_columns(ids, weight.param, queue).requires_grad());
}

INSTANTIATE_TEST_SUITE_P(ComputeTypes, EmbeddingTest, testing::Values(at::kFloat, at::kBFloat16, at::kHalf));

}  // namespace embedding_test
}  // namespace espalier::kernels
