// Groups, collectives and their backward on forked ranks, through shared memory and through Gloo. The parent runs
// nothing with libtorch.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdio>

#include "base/error.h"
#include "dist/collectives.h"
#include "dist/local_ranks.h"

namespace espalier::dist {
namespace {
namespace dist_test {

using spec::GridShape;

// What a rank of the tests below holds: different on every rank, exact in fp32.
at::Tensor values_of(int64_t rank, at::IntArrayRef shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return (at::arange(count, at::kFloat) + 100.0f * static_cast<float>(rank)).view(shape);
}

// The same on every rank of `group`, whatever this one holds itself.
at::Tensor sum_of_all(int64_t size, at::IntArrayRef shape) {
  at::Tensor sum = at::zeros(shape);
  for (int64_t rank = 0; rank < size; ++rank) sum = sum + values_of(rank, shape);
  return sum;
}

at::Tensor concatenation(int64_t size, at::IntArrayRef shape) {
  std::vector<at::Tensor> parts;
  for (int64_t rank = 0; rank < size; ++rank) parts.push_back(values_of(rank, shape));
  return at::cat(parts, 0);
}

void check_equal(const at::Tensor& actual, const at::Tensor& expected, const char* what) {
  if (!at::equal(actual, expected)) throw std::runtime_error(concat(what, ":\n", actual, "\ninstead of\n", expected));
}

// Runs f on x and the gradient g of its result back.
struct ForwardBackward {
  at::Tensor y, dx;
};
template <class Function>
ForwardBackward forward_backward(const at::Tensor& x, const at::Tensor& g, const Function& f) {
  const at::Tensor leaf = x.detach().clone().requires_grad_(true);
  const at::Tensor y = f(leaf);
  torch::autograd::backward({y}, {g});
  return {y.detach(), leaf.grad()};
}

std::string check_collectives(const Grid& grid) {
  const Group& group = grid.tensor;
  const int64_t n = group.size(), r = group.rank();
  const at::Tensor x = values_of(r, {3, 2}), wide = values_of(r, {3 * n, 2});
  auto got = forward_backward(x, x, [&](const at::Tensor& t) { return copy_to_ranks(t, group); });
  check_equal(got.y, x, "copy forward");
  check_equal(got.dx, sum_of_all(n, {3, 2}), "copy backward");
  got = forward_backward(x, x, [&](const at::Tensor& t) { return sum_over_ranks(t, group); });
  check_equal(got.y, sum_of_all(n, {3, 2}), "sum forward");
  check_equal(got.dx, x, "sum backward");
  got = forward_backward(x, wide, [&](const at::Tensor& t) { return gather_sequence(t, group); });
  check_equal(got.y, concatenation(n, {3, 2}), "gather forward");
  check_equal(got.dx, sum_of_all(n, {3 * n, 2}).narrow(0, 3 * r, 3), "gather backward");
  got = forward_backward(wide, x, [&](const at::Tensor& t) { return sum_and_split_sequence(t, group); });
  check_equal(got.y, sum_of_all(n, {3 * n, 2}).narrow(0, 3 * r, 3), "split forward");
  check_equal(got.dx, concatenation(n, {3, 2}), "split backward");
  return "checked";
}

std::string check_heads(const Grid& grid) {
  const Group& group = grid.context;
  const int64_t n = group.size(), r = group.rank(), s = 3, b = 2, heads = 2 * n;
  const at::Tensor whole = values_of(0, {n * s, b, heads});
  const at::Tensor rows = whole.narrow(0, r * s, s).contiguous(), columns = whole.narrow(2, r * 2, 2).contiguous();
  auto got = forward_backward(rows, columns, [&](const at::Tensor& t) { return sequence_to_heads(t, group); });
  check_equal(got.y, columns, "to heads forward");
  check_equal(got.dx, rows, "to heads backward");
  got = forward_backward(columns, rows, [&](const at::Tensor& t) { return heads_to_sequence(t, group); });
  check_equal(got.y, rows, "to sequence forward");
  check_equal(got.dx, columns, "to sequence backward");
  return "checked";
}

TEST(Dist, CollectivesAndTheirBackwardAreTheLoopsOverRanks) {
  for (const bool shared_memory : {true, false})
    for (const int64_t size : {1, 2, 3, 4}) {
      const std::vector<std::string> expected(static_cast<size_t>(size), "checked");
      EXPECT_EQ(run_ranks({.tensor = size}, check_collectives, {.shared_memory = shared_memory}), expected);
      EXPECT_EQ(run_ranks({.context = size}, check_heads, {.shared_memory = shared_memory}), expected);
    }
}

TEST(Dist, GroupsAreMegatronsLinesThroughTheGrid) {
  const auto describe = [](const Grid& grid) {
    std::string text;
    const Group alone("alone", {grid.rank}, 0, {});
    for (const Group* group : {&grid.tensor, &grid.context, &grid.data, &grid.gradient, &grid.pipeline, &grid.model,
                               grid.shared.empty() ? &alone : &grid.shared[0].group}) {
      for (const int64_t rank : group->ranks()) text += std::to_string(rank);
      text += " ";
    }
    return text;
  };
  const auto lines = run_ranks({.tensor = 2, .context = 1, .data = 2, .pipeline = 2}, describe);
  EXPECT_EQ(lines[0], "01 0 02 02 04 0145 04 ");
  EXPECT_EQ(lines[3], "23 3 13 13 37 2367 37 ");
  EXPECT_EQ(lines[6], "67 6 46 46 26 2367 26 ");
  const auto context = run_ranks({.tensor = 1, .context = 2, .data = 2, .pipeline = 1}, describe);
  EXPECT_EQ(context[1], "1 01 13 0123 1 1 1 ");
}

TEST(Dist, EveryRankHearsWhatIsTrueOnAny) {
  const auto heard = [](const Grid& grid) {
    std::string text;
    for (const bool any : grid.world.any({grid.rank == 1, false, true, grid.rank != 1})) text += any ? '1' : '0';
    return text + (grid.world.any(grid.rank == 2) ? " yes" : " no");
  };
  for (const std::string& text : run_ranks({.data = 3}, heard)) EXPECT_EQ(text, "1011 yes");
  for (const std::string& text : run_ranks({.data = 1}, heard)) EXPECT_EQ(text, "0011 no");
}

TEST(Dist, SumsInDoubleAreTheSameOnEveryRank) {
  const auto sum = [](const Grid& grid) {
    return concat(grid.world.sum(grid.rank == 0 ? 1e16 : 1.0) == 1e16 + 1.0 + 1.0);
  };
  // In the order of ranks both ones are lost, one by one.
  const auto results = run_ranks({.data = 3}, sum);
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

TEST(Dist, TextsOfAnyLengthComeBackInOrder) {
  const auto texts = [](const Grid& grid) {
    std::string all;
    for (const auto& text : grid.world.gather_texts(std::string(static_cast<size_t>(grid.rank * 3), 'a')))
      all += text + ",";
    return all;
  };
  EXPECT_EQ(run_ranks({.data = 3}, texts), std::vector<std::string>(3, ",aaa,aaaaaa,"));
}

TEST(Dist, MessagesFindTheirReceiverByTag) {
  const auto exchange = [](const Grid& grid) {
    if (grid.rank == 0) {
      Pending second = grid.pipeline.start_send(at::full({3}, 2.0f), 1, 2);
      Pending first = grid.pipeline.start_send(at::full({3}, 1.0f), 1, 1);
      first.wait();
      second.wait();
      return std::string("sent");
    }
    const at::Tensor one = at::zeros({3}), two = at::zeros({3});
    grid.pipeline.start_receive(one, 0, 1).wait();
    grid.pipeline.start_receive(two, 0, 2).wait();
    return concat(one.sum().item<float>(), " ", two.sum().item<float>());
  };
  EXPECT_EQ(run_ranks({.pipeline = 2}, exchange)[1], "3 6");
  EXPECT_EQ(run_ranks({.pipeline = 2}, exchange, {.shared_memory = false})[1], "3 6");
}

TEST(Dist, ARankThatThrowsEndsTheOthersAndIsNamed) {
  const auto fail = [](const Grid& grid) {
    if (grid.rank == 2) throw UserError("disk on fire");
    grid.world.barrier();
    return std::string();
  };
  try {
    run_ranks({.data = 4}, fail);
    FAIL() << "nothing was thrown";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("rank 2 of 4"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("disk on fire"), std::string::npos) << error.what();
  }
}

TEST(Dist, ARankThatDiesBehindItsReportIsTold) {
  // A rank's last act is to write what its streams hold.
  const auto die = [](const Grid& grid) {
    if (grid.rank == 1) {
      const auto write = [](void*, const char*, size_t size) {
        ::raise(SIGKILL);
        return static_cast<ssize_t>(size);
      };
      std::FILE* const stream =
          ::fopencookie(nullptr, "w", {.read = nullptr, .write = write, .seek = nullptr, .close = nullptr});
      std::fputs("last words", stream);
    }
    return std::string("done");
  };
  try {
    run_ranks({.data = 2}, die);
    FAIL() << "nothing was thrown";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("rank 1 of 2"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("ended by signal 9"), std::string::npos) << error.what();
  }
}

}  // namespace dist_test
}  // namespace
}  // namespace espalier::dist
