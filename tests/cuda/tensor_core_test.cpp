// The stand-in for tensor cores against PTX's tables, and that attention goes to them where it can.
#include "kernels/cuda/tensor_core.cuh"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <vector>

#include "base/error.h"
#include "kernels/paged_attention.h"
#include "tests/cuda/attention_cases.h"

namespace espalier::cuda {
namespace tensor_core_test {

// Runs `body` on one warp with `bytes` of shared memory.
void on_a_warp(int bytes, const std::function<void()>& body) {
  const auto kernel = [](const std::function<void()>& run) {
    const Unrecorded here;  // it is the test's code, which uses the host's memory
    run();
  };
  launch("test", static_cast<void (*)(const std::function<void()>&)>(kernel), {1, 32, bytes, nullptr}, body);
}
int lane() { return static_cast<int>(threadIdx.x); }

// PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type": groupID = laneid / 4, and of element i,
//   a: row = groupID for (0 <= i < 2) or (4 <= i < 6), else groupID + 8
//      column = threadID_in_group * 2 + (i & 1) for i < 4, and 8 more for i >= 4
//   b: row = threadID_in_group * 2 + (i & 1) for i < 2, and 8 more for i >= 2; column = groupID
//   c: row = groupID for i < 2, else groupID + 8; column = threadID_in_group * 2 + (i & 1)
struct Element {
  int row, column;
};
Element of_a(int laneid, int i) {
  const int group_id = laneid >> 2, thread_in_group = laneid % 4;
  return {(i < 2 || (i >= 4 && i < 6)) ? group_id : group_id + 8,
          i < 4 ? thread_in_group * 2 + (i & 1) : thread_in_group * 2 + (i & 1) + 8};
}
Element of_b(int laneid, int i) {
  const int group_id = laneid >> 2, thread_in_group = laneid % 4;
  return {i < 2 ? thread_in_group * 2 + (i & 1) : thread_in_group * 2 + (i & 1) + 8, group_id};
}
Element of_c(int laneid, int i) {
  const int group_id = laneid >> 2, thread_in_group = laneid % 4;
  return {i < 2 ? group_id : group_id + 8, thread_in_group * 2 + (i & 1)};
}

TEST(TensorCoreOnHost, ProductsAreOfTheElementsThatPtxNames) {
  std::mt19937 generator(1);
  std::uniform_int_distribution<int> small(-8, 8);
  std::array<std::array<float, 16>, 16> a;
  std::array<std::array<float, 8>, 16> b, c, expected;
  for (auto& row : a)
    for (float& x : row) x = static_cast<float>(small(generator));
  for (auto* matrix : {&b, &c})
    for (auto& row : *matrix)
      for (float& x : row) x = static_cast<float>(small(generator));
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 8; ++j) {
      expected[i][j] = c[i][j];
      for (int k = 0; k < 16; ++k) expected[i][j] += a[i][k] * b[k][j];
    }
  int checked = 0;
  on_a_warp(0, [&] {
    uint32_t left[4], right[2];
    float sums[4];
    for (int i = 0; i < 8; i += 2)
      left[i / 2] = two_rounded<__nv_bfloat16>(a[of_a(lane(), i).row][of_a(lane(), i).column],
                                               a[of_a(lane(), i + 1).row][of_a(lane(), i + 1).column]);
    for (int i = 0; i < 4; i += 2)
      right[i / 2] = two_rounded<__nv_bfloat16>(b[of_b(lane(), i).row][of_b(lane(), i).column],
                                                b[of_b(lane(), i + 1).row][of_b(lane(), i + 1).column]);
    for (int i = 0; i < 4; ++i) sums[i] = c[of_c(lane(), i).row][of_c(lane(), i).column];
    add_product<__nv_bfloat16>(sums, left, right);
    for (int i = 0; i < 4; ++i, ++checked)
      EXPECT_EQ(sums[i], expected[of_c(lane(), i).row][of_c(lane(), i).column])
          << "lane " << lane() << " element " << i;
  });
  EXPECT_EQ(checked, 128);
}

// PTX ISA, ldmatrix: row r of matrix i is at the address of thread 8 i + r. Thread t has, of row t / 4, the elements
// 2 (t % 4) and 2 (t % 4) + 1; with .trans, the same of the transposed matrix.
TEST(TensorCoreOnHost, MatricesAreLoadedAsPtxSays) {
  for (const bool transposed : {false, true})
    on_a_warp(32 * 16, [&] {
      auto* const shared = reinterpret_cast<uint16_t*>(shared_memory());
      // The rows in reverse order, that addresses count and not the order of lanes.
      const int place = 31 - lane();
      for (int column = 0; column < 8; ++column)
        shared[place * 8 + column] = static_cast<uint16_t>(lane() / 8 * 100 + lane() % 8 * 10 + column);
      __syncthreads();
      uint32_t parts[4];
      const SharedAddress row = shared_address(shared + place * 8);
      transposed ? load_matrices_transposed(parts, row) : load_matrices(parts, row);
      for (int matrix = 0; matrix < 4; ++matrix) {
        const int slow = lane() / 4, fast = lane() % 4 * 2;
        const int low = transposed ? fast * 10 + slow : slow * 10 + fast;
        EXPECT_EQ(parts[matrix] & 0xFFFF, matrix * 100 + low) << lane();
        EXPECT_EQ(parts[matrix] >> 16, matrix * 100 + low + (transposed ? 10 : 1)) << lane();
      }
    });
}

TEST(TensorCoreOnHost, CopiesArriveWhenTheirGroupIsWaitedFor) {
  alignas(16) float source[2][32][4];
  for (int i = 0; i < 256; ++i) source[i / 128][i / 4 % 32][i % 4] = static_cast<float>(i + 1);
  on_a_warp(2 * 32 * 16, [&] {
    float* const mine[2] = {shared_memory() + lane() * 4, shared_memory() + (32 + lane()) * 4};
    for (int group = 0; group < 2; ++group) {
      copy_async_16(shared_address(mine[group]), source[group][lane()], lane() != 3);
      commit_copies();
    }
    EXPECT_TRUE(std::isnan(mine[0][0]));
    wait_for_copies<1>();
    EXPECT_EQ(mine[0][3], lane() == 3 ? 0 : lane() * 4 + 4);
    EXPECT_TRUE(std::isnan(mine[1][0]));
    wait_for_copies<0>();
    EXPECT_EQ(mine[1][0], lane() == 3 ? 0 : 128 + lane() * 4 + 1);
  });
}

TEST(TensorCoreOnHost, OddAddressesAreRefused) {
  alignas(16) char source[32];
  on_a_warp(64, [&] {
    uint32_t parts[4];
    EXPECT_THROW(copy_async_16(0, source + 8, true), InternalError);
    EXPECT_THROW(copy_async_16(8, source, true), InternalError);
    EXPECT_THROW(copy_async_16(64, source, true), InternalError);
    EXPECT_THROW(copy_async_4(2, source, true), InternalError);
    EXPECT_THROW(load_matrices(parts, 8), InternalError);
  });
}

// The kernels that a forward and a backward pass launched.
std::vector<std::string> launches(at::ScalarType type, int64_t head_size) {
  last_launches.clear();
  const cuda_test::UseDevice use;
  cuda_test::attend(type, cuda_test::kMasks[0], {2, 1}, 5, head_size, cuda_test::device_under_test());
  return last_launches;
}

TEST(AttentionOnHost, GoesToTensorCoresWhereItCan) {
  const std::vector<std::string> on_tensor_cores{"attention_forward_on_tensor_cores", "attention_row_dots_by_16_bytes",
                                                 "attention_key_gradient_on_tensor_cores",
                                                 "attention_query_gradient_on_tensor_cores"};
  const std::vector<std::string> on_plain_cores{"attention_forward", "attention_row_dots", "attention_key_gradient",
                                                "attention_query_gradient"};
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    for (const int64_t head_size : {8, 64, 80, 128, 256}) EXPECT_EQ(launches(type, head_size), on_tensor_cores);
    EXPECT_EQ(launches(type, 20), on_plain_cores);  // rows at multiples of 8 bytes
  }
  EXPECT_EQ(launches(at::kFloat, 64), on_plain_cores);
}

// The kernels that attention to pages of `tokens` tokens of one sequence, and of one token of another, launched.
std::vector<std::string> launches_of_pages(at::ScalarType type, int64_t head_size, int32_t tokens) {
  const cuda_test::UseDevice use;
  const at::Device device = cuda_test::device_under_test();
  tensor::PagedKeyValues pages;
  pages.page_tokens = pages.capacity = 64;
  const int64_t elements = kernels::page_elements(device, type, pages.page_tokens, head_size);
  const auto part = [&] { return at::empty({2, 1, elements}, at::TensorOptions().dtype(type).device(device)); };
  pages.layers = {{part(), part()}};
  const int32_t numbers[] = {0, 1};
  for (int32_t position = 0; position < tokens; ++position)
    pages.tokens.push_back({&numbers[0], position, position, false});
  pages.tokens.push_back({&numbers[1], 0, 0, false});
  kernels::send_tokens(pages);
  tensor::AttentionContext context;
  context.pages = &pages;
  const at::Tensor qkv = cuda_test::random({tokens + 1, 1, 3 * head_size}, type, 1).to(device);
  last_launches.clear();
  kernels::paged_attention(qkv, context, {1, 1}, 0);
  return last_launches;
}

TEST(AttentionOnHost, OfLongRunsGoesToTensorCoresWhereItCan) {
  const std::vector<std::string> on_both{"append_to_pages", "paged_attention_on_tensor_cores", "paged_attention"};
  // Those of runs that are long, the others.
  const std::vector<std::string> on_plain_cores{"append_to_pages", "paged_attention", "paged_attention"};
  const std::vector<std::string> only_singles{"append_to_pages", "paged_attention"};
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    for (const int64_t head_size : {8, 128, 256}) EXPECT_EQ(launches_of_pages(type, head_size, 16), on_both);
    EXPECT_EQ(launches_of_pages(type, 64, 15), only_singles);
    EXPECT_EQ(launches_of_pages(type, 20, 16), on_plain_cores);
  }
  EXPECT_EQ(launches_of_pages(at::kFloat, 64, 16), on_plain_cores);
}

// Those of compute capability 8.6, 8.9 and 12 have 99 KiB for a block: these launches are refused there.
TEST(AttentionOnHost, OnlyWideHeadsOnPlainCoresNeedMoreSharedMemoryThanEveryGpuHas) {
  most_shared_bytes.clear();
  const cuda_test::UseDevice use;
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const int64_t head_size : {64, 128, 192, 256})
      for (const size_t mask : {0, 17})  // 17: with a bias by distance
        cuda_test::attend(type, cuda_test::kMasks[mask], {1, 1}, 5, head_size, cuda_test::device_under_test());
  std::vector<std::string> above;
  for (const auto& [name, bytes] : most_shared_bytes)
    if (bytes > 99 << 10) above.push_back(name);
  EXPECT_EQ(above,
            (std::vector<std::string>{"attention_diagonals", "attention_key_gradient", "attention_query_gradient"}));
}

}  // namespace tensor_core_test
}  // namespace espalier::cuda
