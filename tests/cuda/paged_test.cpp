// As ops_test.cpp: attention to keys and values in pages, of several sequences in one pass.
#include "kernels/paged_attention.h"

#include <cmath>

#include "tests/cuda/agreement.h"

namespace espalier::cuda_test {
namespace paged_test {

using kernels::Heads;
using tensor::AttentionContext;
using tensor::PagedKeyValues;

constexpr int64_t kPages = 48, kCapacity = 128;
constexpr int64_t kLengths[] = {1, 33, 70};  // of the sequences

struct Case {
  int64_t page_tokens, head_size;
  Heads heads;
};
void PrintTo(const Case& value, std::ostream* out) {
  *out << "pages of " << value.page_tokens << ", heads of " << value.head_size << ", " << value.heads.queries << " and "
       << value.heads.groups;
}

// Each sequence has pages of its own, in no order.
std::vector<std::vector<int32_t>> pages_of_sequences(int64_t page_tokens) {
  std::vector<std::vector<int32_t>> result;
  int32_t next = 0;
  for (const int64_t length : kLengths) {
    result.emplace_back();
    for (int64_t begin = 0; begin < length; begin += page_tokens) result.back().push_back(next++ * 11 % kPages);
  }
  return result;
}

// What was in the pages before must not be seen.
PagedKeyValues new_pages(const Case& of, at::ScalarType type, at::Device device) {
  PagedKeyValues pages;
  pages.page_tokens = of.page_tokens;
  pages.capacity = kCapacity;
  const auto part = [&] {
    const int64_t elements = kernels::page_elements(device, type, of.page_tokens, of.head_size);
    return at::full({kPages, of.heads.groups, elements}, std::nan(""), at::TensorOptions().dtype(type).device(device));
  };
  pages.layers = {{part(), part()}};
  return pages;
}

class DevicePages : public testing::TestWithParam<Case> {
 protected:
  // All but the last token of each sequence, and then that one. `whole`: the first ones all see each other.
  static Tensors run(const AttentionContext& context, at::ScalarType type, at::Device device, bool whole) {
    const Case& of = GetParam();
    const auto sequences = pages_of_sequences(of.page_tokens);
    PagedKeyValues pages = new_pages(of, type, device);
    AttentionContext with_pages = context;
    with_pages.pages = &pages;
    for (at::Tensor* tensor : {&with_pages.alibi_slopes, &with_pages.relative_bias})
      if (tensor->defined()) *tensor = tensor->to(device);
    Tensors results;
    for (const bool is_last : {false, true}) {
      std::vector<at::Tensor> rows;
      pages.tokens.clear();
      for (size_t i = 0; i < sequences.size(); ++i) {
        const int64_t before = kLengths[i] - 1, begin = is_last ? before : 0, count = is_last ? 1 : before;
        rows.push_back(random({kLengths[i], of.heads.columns(of.head_size)}, type, 10 + i).narrow(0, begin, count));
        for (int64_t position = begin; position < begin + count; ++position)
          pages.tokens.push_back({sequences[i].data(), static_cast<int32_t>(position),
                                  static_cast<int32_t>(whole && !is_last ? before - 1 : position), false});
      }
      kernels::send_tokens(pages);
      const at::Tensor qkv = at::cat(rows).unsqueeze(1).to(device);
      results.push_back(kernels::paged_attention(qkv, with_pages, of.heads, /*layer=*/0));
    }
    return results;
  }
  static void expect_agrees(const char* what, const AttentionContext& context, bool whole = false) {
    for (const auto type : kTypes)
      expect_agreement(
          what, type, [&](at::Device device) { return run(context, type, device, whole); }, 16);
  }
};

TEST_P(DevicePages, AgreeUnderEveryMaskAndBias) {
  const int64_t heads = GetParam().heads.queries;
  expect_agrees("plain", {});
  expect_agrees("whole prompts", {}, true);
  AttentionContext context;
  context.window = 5, context.scale = 0.7 / std::sqrt(static_cast<double>(GetParam().head_size));
  expect_agrees("window of 5", context);
  context.window = 40;
  expect_agrees("window of 40", context);
  context = {};
  context.alibi_slopes = at::arange(1, heads + 1, at::kFloat) / 10;
  context.soft_cap = 2;
  expect_agrees("slopes and a cap", context);
  context = {};
  context.relative_bias = random({heads, 2 * kCapacity - 1}, at::kFloat, 3);
  expect_agrees("bias by distance", context);
}

TEST_P(DevicePages, AgreeInWhatAnotherSequenceHolds) {
  const Case& of = GetParam();
  const auto sequences = pages_of_sequences(of.page_tokens);
  for (const auto type : kTypes)
    expect_agreement(
        "another sequence", type,
        [&](at::Device device) -> Tensors {
          PagedKeyValues pages = new_pages(of, type, device);
          for (size_t i = 0; i < sequences.size(); ++i) {
            kernels::fill_pages(random({kLengths[i], 1, of.heads.groups * 2 * of.head_size}, type, 20 + i).to(device),
                                sequences[i], of.page_tokens, of.head_size, pages.layers[0]);
            for (int token = 0; token < 3; ++token)
              pages.tokens.push_back({sequences[i].data(), 0, static_cast<int32_t>(kLengths[i]) - 1, false});
          }
          kernels::send_tokens(pages);
          AttentionContext context;
          context.pages = &pages;
          const int64_t tokens = static_cast<int64_t>(pages.tokens.size());
          const at::Tensor query = random({tokens, 1, of.heads.query_columns(of.head_size)}, type, 30).to(device);
          return {kernels::paged_cross_attention(query, context, of.heads, /*layer=*/0)};
        },
        16);
}

INSTANTIATE_TEST_SUITE_P(Sizes, DevicePages,
                         testing::Values(Case{16, 21, {6, 2}}, Case{64, 64, {4, 4}}, Case{32, 80, {6, 3}},
                                         Case{4, 8, {4, 1}}, Case{64, 130, {2, 1}}, Case{64, 256, {2, 2}}));

// Whoever else is in the pass.
TEST(DevicePages, ATokensBitsDependOnItsSequenceAlone) {
  const Case of{16, 64, {4, 2}};
  const auto sequences = pages_of_sequences(of.page_tokens);
  const UseDevice use;
  const auto run = [&](size_t first) {
    PagedKeyValues pages = new_pages(of, at::kBFloat16, device_under_test());
    std::vector<at::Tensor> rows;
    for (size_t i = first; i < sequences.size(); ++i) {
      rows.push_back(random({kLengths[i], of.heads.columns(of.head_size)}, at::kBFloat16, 10 + i));
      for (int32_t position = 0; position < kLengths[i]; ++position)
        pages.tokens.push_back({sequences[i].data(), position, position, false});
    }
    kernels::send_tokens(pages);
    AttentionContext context;
    context.pages = &pages;
    const at::Tensor qkv = at::cat(rows).unsqueeze(1).to(device_under_test());
    return kernels::paged_attention(qkv, context, of.heads, 0).cpu();
  };
  EXPECT_TRUE(at::equal(run(0).narrow(0, kLengths[0] + kLengths[1], kLengths[2]), run(2)));
}

}  // namespace paged_test
}  // namespace espalier::cuda_test
