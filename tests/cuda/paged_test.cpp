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
PagedKeyValues new_pages(const Case& of, at::ScalarType type, at::Device device, int64_t count = kPages) {
  PagedKeyValues pages;
  pages.page_tokens = of.page_tokens;
  pages.capacity = kCapacity;
  const auto part = [&] {
    const int64_t elements = kernels::page_elements(device, type, of.page_tokens, of.head_size);
    return at::full({count, of.heads.groups, elements}, std::nan(""), at::TensorOptions().dtype(type).device(device));
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
  // Unless all cases are taken, in the types by turns.
  void expect_agrees(const char* what, const AttentionContext& context, bool whole = false) {
    const size_t turn = turn_++;
    for (size_t i = 0; i < std::size(kTypes); ++i)
      if (turn % std::size(kTypes) == i || takes_all_cases())
        expect_agreement(
            what, kTypes[i], [&](at::Device device) { return run(context, kTypes[i], device, whole); }, 16);
  }

 private:
  size_t turn_ = static_cast<size_t>(GetParam().heads.queries) / 2;  // not the same for all parameters
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

// ---- prompts beside single tokens, against formulas in double

// `count` tokens of one sequence in a pass, from position `cached` on. `whole`: they all see each other.
struct TokenRun {
  int64_t cached, count;
  bool whole = false;
  int64_t length() const { return cached + count; }
};

class DevicePrompts : public testing::TestWithParam<Case> {
 protected:
  struct Sequence {
    TokenRun run;
    at::Tensor qkv;  // [length, groups, queries of a group + 2, head_size]
    std::vector<int32_t> pages;
  };

  static std::vector<Sequence> sequences_of(const std::vector<TokenRun>& runs, at::ScalarType type) {
    const Case& of = GetParam();
    std::vector<Sequence> sequences;
    int32_t next = 0;
    for (const TokenRun& run : runs) {
      sequences.push_back(
          {run, random({run.length(), of.heads.groups, of.heads.per_group() + 2, of.head_size}, type, 40 + next), {}});
      for (int64_t begin = 0; begin < run.length(); begin += of.page_tokens) sequences.back().pages.push_back(next++);
    }
    for (Sequence& sequence : sequences)  // in no order
      for (int32_t& page : sequence.pages) page = next - 1 - (page ^ (page < next / 2 * 2 ? 1 : 0));
    return sequences;
  }

  // [count, query heads * head_size] in double.
  static at::Tensor expected(const Sequence& sequence, const AttentionContext& context) {
    const Case& of = GetParam();
    const TokenRun& run = sequence.run;
    const at::Tensor all = sequence.qkv.to(at::kDouble);
    const at::Tensor keys = at::arange(run.length()).unsqueeze(0);
    const at::Tensor positions = at::arange(run.cached, run.length()).unsqueeze(1), distances = keys - positions;
    at::Tensor hidden = keys > (run.whole ? at::full_like(positions, run.length() - 1) : positions);
    if (context.window > 0) hidden = hidden.logical_or(distances <= -context.window);
    std::vector<at::Tensor> heads;
    for (int64_t head = 0; head < of.heads.queries; ++head) {
      const int64_t per_group = of.heads.per_group();
      const at::Tensor group = all.select(1, head / per_group);  // [length, parts, head_size]
      const at::Tensor query = group.select(1, head % per_group).narrow(0, run.cached, run.count);
      at::Tensor scores = at::matmul(query, group.select(1, per_group).t()) *
                          context.scale.value_or(1 / std::sqrt(static_cast<double>(of.head_size)));
      if (context.soft_cap > 0) scores = context.soft_cap * at::tanh(scores / context.soft_cap);
      if (context.alibi_slopes.defined()) scores = scores + context.alibi_slopes[head].item<double>() * distances;
      if (context.relative_bias.defined())
        scores =
            scores +
            context.relative_bias[head].to(at::kDouble).index({distances + (context.relative_bias.size(1) - 1) / 2});
      scores = scores.masked_fill(hidden, -INFINITY);
      heads.push_back(at::matmul(at::softmax(scores, 1), group.select(1, per_group + 1)));
    }
    return at::cat(heads, 1);
  }

  // [tokens, query heads * head_size] on the CPU. What no token has written is NaN.
  static at::Tensor actual(const std::vector<Sequence>& sequences, const AttentionContext& context) {
    const Case& of = GetParam();
    const at::Device device = device_under_test();
    const at::ScalarType type = sequences[0].qkv.scalar_type();
    int64_t num_pages = 0;
    for (const Sequence& sequence : sequences)
      for (const int32_t page : sequence.pages) num_pages = std::max<int64_t>(num_pages, page + 1);
    PagedKeyValues pages = new_pages(of, type, device, num_pages);
    pages.capacity = kLongest;
    std::vector<at::Tensor> rows;
    for (const Sequence& sequence : sequences) {
      const TokenRun& run = sequence.run;
      if (run.cached > 0)
        kernels::fill_pages(sequence.qkv.narrow(0, 0, run.cached)
                                .narrow(2, of.heads.per_group(), 2)
                                .reshape({run.cached, 1, -1})
                                .to(device),
                            sequence.pages, of.page_tokens, of.head_size, pages.layers[0]);
      for (int64_t position = run.cached; position < run.length(); ++position)
        pages.tokens.push_back({sequence.pages.data(), static_cast<int32_t>(position),
                                static_cast<int32_t>(run.whole ? run.length() - 1 : position), false});
      rows.push_back(sequence.qkv.narrow(0, run.cached, run.count).reshape({run.count, 1, -1}));
    }
    kernels::send_tokens(pages);
    AttentionContext on_device = context;
    on_device.pages = &pages;
    for (at::Tensor* tensor : {&on_device.alibi_slopes, &on_device.relative_bias})
      if (tensor->defined()) *tensor = tensor->to(device);
    return kernels::paged_attention(at::cat(rows).to(device), on_device, of.heads, /*layer=*/0).squeeze(1).cpu();
  }

  static void expect_right(const char* what, const std::vector<TokenRun>& runs, const AttentionContext& context,
                           at::ScalarType type = at::kBFloat16) {
    const std::vector<Sequence> sequences = sequences_of(runs, type);
    const UseDevice use;
    const at::Tensor all = actual(sequences, context).to(at::kDouble);
    int64_t row = 0;
    for (const Sequence& sequence : sequences) {
      const at::Tensor wanted = expected(sequence, context), found = all.narrow(0, row, sequence.run.count);
      row += sequence.run.count;
      // Probabilities and results are rounded: each by half a unit of the largest value.
      const double rounding = type == at::kBFloat16 ? 0x1p-8 : type == at::kHalf ? 0x1p-11 : 0x1p-20;
      const double allowed = 2 * rounding * wanted.abs().max().item<double>();
      const double worst = (found - wanted).abs().max().item<double>();
      EXPECT_LE(worst, allowed) << what << " " << c10::toString(type) << ", " << sequence.run.count << " tokens after "
                                << sequence.run.cached;  // not where it is NaN
    }
  }

  // Unless all cases are taken, some of the parameters have one type and the others another.
  static bool is_even() { return (GetParam().heads.queries + GetParam().heads.groups) % 2 == 0; }

  static constexpr int64_t kLongest = 1200;
};

TEST_P(DevicePrompts, OfEveryLengthAreRightBesideSingleTokens) {
  const std::vector<TokenRun> runs = {{0, 1},   {0, 7},   {3, 33},   {70, 1}, {0, 64},
                                      {37, 65}, {0, 130}, {100, 15}, {5, 16}};
  expect_right("plain", runs, {});
  if (is_even() || takes_all_cases()) expect_right("plain", runs, {}, at::kHalf);
}

TEST_P(DevicePrompts, AreRightUnderEveryMaskAndBias) {
  const std::vector<TokenRun> runs = {{0, 130}, {90, 33}, {120, 1}};
  const int64_t heads = GetParam().heads.queries;
  expect_right("whole", {{0, 130, true}, {20, 33, true}, {120, 1}, {0, 64}}, {});
  AttentionContext context;
  context.window = 5, context.scale = 0.7 / std::sqrt(static_cast<double>(GetParam().head_size));
  expect_right("window of 5", runs, context);
  context.window = 70;
  expect_right("window of 70", runs, context);
  context = {};
  context.alibi_slopes = at::arange(1, heads + 1, at::kFloat) / 10;
  context.soft_cap = 2;
  expect_right("slopes and a cap", runs, context);
  context = {};
  context.relative_bias = random({heads, 2 * kLongest - 1}, at::kFloat, 3);
  context.window = 40;
  expect_right("bias by distance and a window", runs, context);
  expect_right("bias by distance, whole", {{0, 70, true}}, context);
}

// Their keys are in several parts.
TEST_P(DevicePrompts, SingleTokensBehindLongTextsAreRight) {
  std::vector<TokenRun> runs = {{1100, 1}, {511, 1}, {512, 1}, {1021, 5}, {90, 1}};
  for (const auto type : {at::kFloat, at::kBFloat16}) expect_right("plain", runs, {}, type);
  if (!takes_all_cases()) runs = {{1100, 1}, {512, 1}, {90, 1}};
  AttentionContext context;
  context.window = 600;
  expect_right("window of 600", runs, context);
  context.window = 40;
  context.alibi_slopes = at::arange(1, GetParam().heads.queries + 1, at::kFloat) / 100;
  expect_right("window of 40 and slopes", runs, context);
  context = {};
  context.relative_bias = random({GetParam().heads.queries, 2 * kLongest - 1}, at::kFloat, 3);
  expect_right("bias by distance", runs, context);
}

TEST_P(DevicePrompts, BitsDependOnTheirSequenceAlone) {
  const UseDevice use;
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    if ((type == at::kBFloat16) != is_even() && !takes_all_cases()) continue;
    const std::vector<Sequence> sequences = sequences_of({{1100, 1}, {30, 1}, {0, 20}, {600, 2}, {60, 40}}, type);
    const at::Tensor together = actual(sequences, {});
    int64_t row = 0;
    for (const Sequence& sequence : sequences) {
      EXPECT_TRUE(at::equal(actual({sequence}, {}), together.narrow(0, row, sequence.run.count))) << row;
      row += sequence.run.count;
    }
  }
}

// No last page is full; heads of a size that has, and has not, all features of a tile.
std::vector<Case> cases_of_prompts() {
  std::vector<Case> cases = {{4, 8, {4, 1}}, {16, 64, {4, 2}}, {64, 80, {3, 3}}, {64, 128, {2, 1}}, {16, 256, {2, 2}}};
  if (takes_all_cases()) cases.push_back({32, 96, {4, 2}});  // in tiles for 128 features, as 80
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Sizes, DevicePrompts, testing::ValuesIn(cases_of_prompts()));

}  // namespace paged_test
}  // namespace espalier::cuda_test
