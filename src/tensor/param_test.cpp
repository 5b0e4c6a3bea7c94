#include "tensor/param.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"

namespace espalier::tensor {
namespace param_test {

TEST(GradQueue, ImmediateWorkRunsInsidePush) {
  GradQueue queue;
  Param param;
  int runs = 0;
  queue.push(param, [&] { ++runs; });
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(queue.num_pending(), 0u);
}

TEST(GradQueue, DeferredWorkWaitsAndRunsInOrder) {
  GradQueue queue;
  queue.set_mode(GradQueue::Mode::kDeferred);
  Param a, b;
  std::string order;
  queue.push(a, [&] { order += "1"; });
  queue.push(b, [&] { order += "2"; });
  queue.push(a, [&] { order += "3"; });
  EXPECT_EQ(order, "");
  EXPECT_EQ(queue.num_pending(), 3u);
  queue.drain();
  EXPECT_EQ(order, "123");
  EXPECT_EQ(queue.num_pending(), 0u);
  queue.drain();
  EXPECT_EQ(order, "123");
}

TEST(GradQueue, EveryPieceOfWorkIsReportedAfterItHasRun) {
  for (const auto mode : {GradQueue::Mode::kImmediate, GradQueue::Mode::kDeferred}) {
    GradQueue queue;
    queue.set_mode(mode);
    Param a, b;
    bool ran = false;
    std::vector<const Param*> reported;
    queue.set_on_added([&](Param& param) {
      EXPECT_TRUE(ran);
      reported.push_back(&param);
      ran = false;
    });
    queue.push(a, [&] { ran = true; });
    queue.push(b, [&] { ran = true; });
    queue.drain();
    EXPECT_EQ(reported, (std::vector<const Param*>{&a, &b}));
  }
}

TEST(GradQueue, TheFirstWorkOfAStepOverwritesOrFindsZero) {
  GradQueue queue;
  Param param;
  const auto forget = [&] {
    param.grad = at::full({3}, NAN, at::kFloat);
    param.grad_is_stale = true;
  };
  std::vector<GradWrite> writes;
  forget();
  for (int i = 0; i < 2; ++i) queue.push_write(param, [&](GradWrite write) { writes.push_back(write); });
  EXPECT_EQ(writes, (std::vector<GradWrite>{GradWrite::kOverwrite, GradWrite::kAdd}));
  EXPECT_TRUE(param.grad.isnan().all().item<bool>()) << "only the work writes";
  forget();
  for (int i = 0; i < 2; ++i) queue.push(param, [&] { param.grad.add_(1); });
  EXPECT_EQ(param.grad.sum().item<float>(), 6);
  forget();
  settle_grad(param);
  EXPECT_EQ(param.grad.abs().sum().item<float>(), 0);
  EXPECT_FALSE(param.grad_is_stale);
}

TEST(GradQueue, ChangingTheModeOverWaitingWorkIsABug) {
  GradQueue queue;
  queue.set_mode(GradQueue::Mode::kDeferred);
  Param param;
  queue.push(param, [] {});
  EXPECT_THROW(queue.set_mode(GradQueue::Mode::kImmediate), InternalError);
}

struct Inner {
  Param weight;
  void visit(ParamVisitor& visitor) { visitor.param("weight", weight); }
};
struct Outer {
  Inner first, second;
  Param bias;
  void visit(ParamVisitor& visitor) {
    visitor.child("first", first);
    visitor.param("bias", bias);
    visitor.child("second", second);
  }
};

TEST(ParamVisitor, NamesAreThePathAndComeInVisitingOrder) {
  Outer outer;
  std::vector<std::pair<std::string, const Param*>> seen;
  ParamVisitor visitor([&](const std::string& name, Param& param) { seen.emplace_back(name, &param); });
  visitor.child("layers.3", outer);
  EXPECT_EQ(seen,
            (std::vector<std::pair<std::string, const Param*>>{{"layers.3.first.weight", &outer.first.weight},
                                                               {"layers.3.bias", &outer.bias},
                                                               {"layers.3.second.weight", &outer.second.weight}}));
}

}  // namespace param_test
}  // namespace espalier::tensor
