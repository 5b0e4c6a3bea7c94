#include "kernels/paged_attention.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "base/cpu_isa.h"
#include "kernels/attention.h"
#include "kernels/reference_test.h"
#include "tests/support/long_version.h"

namespace espalier::kernels {
namespace paged_attention_test {

using tensor::AttentionContext;
using tensor::PagedKeyValues;

constexpr int64_t kNumPages = 64;
constexpr Heads kHeads{6, 2};

// 21: an odd number of lanes. What attention of real models has is one or more vectors.
struct Sizes {
  int64_t page_tokens, head;
};
constexpr Sizes kSizes[] = {{16, 21}, {64, 21}, {64, 64}, {32, 80}, {64, 130}, {2, 1}};

struct Sequence {
  at::Tensor qkv;  // [length, columns]
  std::vector<int32_t> pages;
  int64_t length() const { return qkv.size(0); }
};

// Pages in no order, none shared, and what was in them before must not be seen: NaN.
class PagedAttentionTest : public testing::TestWithParam<std::tuple<at::ScalarType, CpuIsa, Sizes>> {
 protected:
  void SetUp() override {
    force_.emplace(isa());
    std::vector<int32_t> order(kNumPages);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(5));
    size_t next = 0;
    for (const int64_t length : {1, 33, 70, 7}) {
      Sequence sequence{reference::random({length, kHeads.columns(head_size())}, type(), 10 + length), {}};
      for (int64_t page = 0; page * page_tokens() < length; ++page) sequence.pages.push_back(order[next++]);
      sequences_.push_back(sequence);
    }
    pages_.page_tokens = page_tokens();
    forget();
  }
  at::ScalarType type() const { return std::get<0>(GetParam()); }
  CpuIsa isa() const { return std::get<1>(GetParam()); }
  int64_t page_tokens() const { return std::get<2>(GetParam()).page_tokens; }
  int64_t head_size() const { return std::get<2>(GetParam()).head; }

  void forget() {
    const auto part = [&] {
      return at::full({kNumPages, kHeads.groups, page_elements(at::kCPU, type(), page_tokens(), head_size())},
                      std::nan(""), type());
    };
    pages_.layers = {{part(), part()}};
  }

  // Runs `lengths[i]` more tokens of each sequence; results are added to `results`.
  void run(const AttentionContext& context, std::vector<int64_t>& done, const std::vector<int64_t>& lengths, bool whole,
           std::vector<std::vector<at::Tensor>>& results) {
    std::vector<at::Tensor> rows;
    pages_.tokens.clear();
    for (size_t i = 0; i < sequences_.size(); ++i) {
      if (lengths[i] == 0) continue;
      rows.push_back(sequences_[i].qkv.narrow(0, done[i], lengths[i]));
      for (int64_t token = done[i]; token < done[i] + lengths[i]; ++token)
        pages_.tokens.push_back({sequences_[i].pages.data(), static_cast<int32_t>(token),
                                 static_cast<int32_t>(whole ? lengths[i] - 1 : token)});
    }
    AttentionContext with_pages = context;
    with_pages.pages = &pages_;
    const at::Tensor result = paged_attention(at::cat(rows).unsqueeze(1).contiguous(), with_pages, kHeads, 0);
    int64_t row = 0;
    for (size_t i = 0; i < sequences_.size(); ++i) {
      if (lengths[i] == 0) continue;
      results[i].push_back(result.select(1, 0).narrow(0, row, lengths[i]));
      row += lengths[i], done[i] += lengths[i];
    }
  }

  // In pieces of at most `most` tokens; the sequences take turns when `together` is not set.
  std::vector<at::Tensor> attend(const AttentionContext& context, int64_t most, bool together, bool whole = false) {
    forget();
    std::vector<int64_t> done(sequences_.size(), 0);
    std::vector<std::vector<at::Tensor>> results(sequences_.size());
    for (size_t turn = 0;; ++turn) {
      std::vector<int64_t> lengths(sequences_.size(), 0);
      int64_t left = 0;
      for (size_t i = 0; i < sequences_.size(); ++i) {
        left += sequences_[i].length() - done[i];
        if (together || i == turn % sequences_.size()) lengths[i] = std::min(most, sequences_[i].length() - done[i]);
      }
      if (left == 0) break;
      if (std::accumulate(lengths.begin(), lengths.end(), int64_t{0}) > 0) run(context, done, lengths, whole, results);
    }
    std::vector<at::Tensor> joined;
    for (const auto& parts : results) joined.push_back(at::cat(parts));
    return joined;
  }

  std::optional<ForceCpuIsa> force_;
  std::vector<Sequence> sequences_;
  PagedKeyValues pages_;
};

constexpr int64_t kBiasKeys = 75;  // more than any sequence has

// softmax(scale q k + slope (j - i) + bias of j - i) v in double, head by head.
at::Tensor plain(const at::Tensor& qkv, const AttentionContext& context, bool whole) {
  const int64_t length = qkv.size(0), queries = kHeads.per_group(), head_size = qkv.size(1) / kHeads.columns(1);
  const at::Tensor x = qkv.to(at::kDouble).view({length, kHeads.groups, queries + 2, head_size});
  at::Tensor result = at::empty({length, kHeads.queries, head_size}, at::kDouble);
  const at::Tensor place = at::arange(length), distance = place.unsqueeze(0) - place.unsqueeze(1);  // key - query
  at::Tensor hidden = whole ? at::zeros({length, length}, at::kBool) : distance > 0;
  if (context.window > 0) hidden = hidden.logical_or(distance <= -context.window);
  for (int64_t head = 0; head < kHeads.queries; ++head) {
    const int64_t group = head / queries;
    const at::Tensor q = x.select(1, group).select(1, head % queries), k = x.select(1, group).select(1, queries),
                     v = x.select(1, group).select(1, queries + 1);
    at::Tensor scores = q.mm(k.t()) * context.scale.value_or(1 / std::sqrt(static_cast<double>(head_size)));
    if (context.soft_cap > 0) scores = context.soft_cap * (scores / context.soft_cap).tanh();
    if (context.alibi_slopes.defined()) scores = scores + distance * context.alibi_slopes[head].item<double>();
    if (context.relative_bias.defined())
      scores = scores +
               context.relative_bias[head].index_select(0, (distance + kBiasKeys - 1).view(-1)).view({length, length});
    result.select(1, head).copy_(at::softmax(scores.masked_fill(hidden, -INFINITY), 1).mm(v));
  }
  return result.view({length, -1});
}

std::vector<std::pair<const char*, AttentionContext>> contexts() {
  AttentionContext alibi, window, scaled, capped, relative;
  alibi.alibi_slopes = alibi_slopes(kHeads.queries);
  window.window = 9;
  scaled.scale = 0.7;
  capped.alibi_slopes = alibi_slopes(kHeads.queries);
  capped.soft_cap = 1.5;
  relative.relative_bias = reference::random({kHeads.queries, 2 * kBiasKeys - 1}, at::kFloat, 77);
  return {{"causal", {}},    {"ALiBi", alibi},   {"window", window},
          {"scale", scaled}, {"capped", capped}, {"relative", relative}};
}

TEST_P(PagedAttentionTest, IsAttentionInDouble) {
  const double bound = type() == at::kFloat ? 2e-6 : type() == at::kHalf ? 2e-3 : 2e-2;
  for (const auto& [name, context] : contexts())
    for (const bool whole : {false, true}) {
      if (whole && context.window > 0) continue;
      const std::vector<at::Tensor> results = attend(context, 100, /*together=*/true, whole);
      for (size_t i = 0; i < results.size(); ++i) {
        const at::Tensor expected = plain(sequences_[i].qkv, context, whole);
        EXPECT_LT((results[i].to(at::kDouble) - expected).abs().max().item<double>(),
                  bound * std::max(1.0, expected.abs().max().item<double>()))
            << name << " " << whole << " " << i;
      }
    }
}

TEST_P(PagedAttentionTest, NeitherCutsNorNeighboursNorThreadsChangeABit) {
  const int threads = at::get_num_threads();
  for (const auto& [name, context] : contexts()) {
    at::set_num_threads(threads);
    const std::vector<at::Tensor> expected = attend(context, 100, /*together=*/true);
    for (const int count : {1, 3})
      for (const int64_t most : {1, 3, 7, 16, 33})
        for (const bool together : {false, true}) {
          if (!test::long_version() && together != (count == 3)) continue;
          at::set_num_threads(count);
          const std::vector<at::Tensor> results = attend(context, most, together);
          for (size_t i = 0; i < results.size(); ++i)
            EXPECT_EQ(std::memcmp(results[i].contiguous().const_data_ptr(), expected[i].contiguous().const_data_ptr(),
                                  expected[i].nbytes()),
                      0)
                << name << " " << most << " " << together << " " << i;
        }
  }
  at::set_num_threads(threads);
}

// Nor does a token whose values are no numbers, for those that do not see it: the ones before it, and with a window
// those long after it. It is one of a pair of positions, next to one that is seen.
TEST_P(PagedAttentionTest, WhatIsNotANumberIsSeenByNobodyElse) {
  constexpr int64_t kWindow = 9;
  AttentionContext windowed;
  windowed.window = kWindow;
  for (const int64_t odd_one : {20, 21, 40})
    for (const AttentionContext& context : {AttentionContext{}, windowed})
      for (const int64_t most : {1, 7, 100}) {
        const at::Tensor before = attend(context, most, /*together=*/true)[2].contiguous();
        const at::Tensor kept = sequences_[2].qkv;
        sequences_[2].qkv = kept.clone();
        const at::Tensor parts =
            sequences_[2].qkv.view({kept.size(0), kHeads.groups, kHeads.per_group() + 2, head_size()});
        parts.select(0, odd_one).select(1, kHeads.per_group() + 1).fill_(INFINITY);
        const at::Tensor after = attend(context, most, /*together=*/true)[2].contiguous();
        sequences_[2].qkv = kept;
        for (int64_t row = 0; row < kept.size(0); ++row) {
          const bool sees = row >= odd_one && (context.window == 0 || row < odd_one + kWindow);
          EXPECT_EQ(at::isfinite(after.select(0, row)).all().item<bool>(), !sees) << odd_one << " " << row;
          EXPECT_TRUE(sees || at::equal(before.select(0, row), after.select(0, row))) << odd_one << " " << row;
        }
      }
}

// To keys and values of another sequence: the queries see all of it, whoever they are computed with.
TEST_P(PagedAttentionTest, ToAnotherSequenceIsAttentionInDouble) {
  const double bound = type() == at::kFloat ? 2e-6 : type() == at::kHalf ? 2e-3 : 2e-2;
  constexpr int64_t kQueries[] = {9, 1, 4};
  forget();
  std::vector<at::Tensor> queries, expected;
  for (size_t i = 0; i < std::size(kQueries); ++i) {
    const Sequence& other = sequences_[i];
    const at::Tensor key_value =
        reference::random({other.length(), 1, kHeads.key_value_columns(head_size())}, type(), 40 + int64_t(i));
    fill_pages(key_value, other.pages, page_tokens(), head_size(), pages_.layers[0]);
    queries.push_back(reference::random({kQueries[i], 1, kHeads.query_columns(head_size())}, type(), 50 + int64_t(i)));
    const at::Tensor kv = key_value.to(at::kDouble).view({other.length(), kHeads.groups, 2, head_size()});
    const at::Tensor q = queries.back().to(at::kDouble).view({kQueries[i], kHeads.queries, head_size()});
    at::Tensor heads = at::empty({kQueries[i], kHeads.queries, head_size()}, at::kDouble);
    for (int64_t head = 0; head < kHeads.queries; ++head) {
      const at::Tensor of_group = kv.select(1, head / kHeads.per_group());
      const at::Tensor scores =
          q.select(1, head).mm(of_group.select(1, 0).t()) / std::sqrt(static_cast<double>(head_size()));
      heads.select(1, head).copy_(at::softmax(scores, 1).mm(of_group.select(1, 1)));
    }
    expected.push_back(heads.view({kQueries[i], -1}));
  }
  const auto attend_to = [&](const std::vector<size_t>& which) {
    std::vector<at::Tensor> rows;
    pages_.tokens.clear();
    for (const size_t i : which) {
      rows.push_back(queries[i]);
      for (int64_t row = 0; row < kQueries[i]; ++row)
        pages_.tokens.push_back({sequences_[i].pages.data(), 0, static_cast<int32_t>(sequences_[i].length() - 1)});
    }
    AttentionContext context;
    context.pages = &pages_;
    return paged_cross_attention(at::cat(rows), context, kHeads, 0).select(1, 0);
  };
  const at::Tensor together = attend_to({0, 1, 2});
  int64_t row = 0;
  for (size_t i = 0; i < std::size(kQueries); ++i) {
    const at::Tensor found = together.narrow(0, row, kQueries[i]);
    EXPECT_LT((found.to(at::kDouble) - expected[i]).abs().max().item<double>(), bound) << i;
    EXPECT_TRUE(at::equal(attend_to({i}), found)) << i;
    row += kQueries[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Types, PagedAttentionTest,
                         testing::Combine(testing::Values(at::kFloat, at::kBFloat16, at::kHalf),
                                          testing::ValuesIn(reference::instruction_sets()), testing::ValuesIn(kSizes)),
                         [](const auto& info) {
                           return std::string(c10::toString(std::get<0>(info.param))) + "_" +
                                  cpu_isa_name(std::get<1>(info.param)) + "_" +
                                  std::to_string(std::get<2>(info.param).page_tokens) + "_" +
                                  std::to_string(std::get<2>(info.param).head);
                         });

}  // namespace paged_attention_test
}  // namespace espalier::kernels
