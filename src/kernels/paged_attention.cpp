#include "kernels/paged_attention.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/cpu_isa.h"
#include "base/error.h"
#include "kernels/device_ops.h"
#include "kernels/internal/row_dispatch.h"

namespace espalier::kernels {
namespace {

struct Tile {
  int64_t first = 0, count = 0;
};

// Neighbours of one sequence together, at most so many.
std::vector<Tile> tiles_of(const std::vector<PagedToken>& tokens, int64_t most) {
  std::vector<Tile> tiles;
  for (size_t token = 0; token < tokens.size(); ++token) {
    const bool is_new = tiles.empty() || tiles.back().count == most || tokens[token].pages != tokens[token - 1].pages;
    if (is_new) tiles.push_back({static_cast<int64_t>(token), 0});
    ++tiles.back().count;
  }
  return tiles;
}

// work(tile, head), in parallel. Tiles inside heads: neighbours read the same keys and values.
template <class Work>
void for_each_tile(const std::vector<Tile>& tiles, int64_t num_heads, const Work& work) {
  const int64_t num_tiles = static_cast<int64_t>(tiles.size());
  at::parallel_for(0, num_tiles * num_heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) work(tiles[static_cast<size_t>(i % num_tiles)], i / num_tiles);
  });
}

bool holds_pairs(at::ScalarType type) {
#ifdef __aarch64__
  (void)type;
  return false;
#else
  return type == at::kBFloat16 && cpu_isa() >= CpuIsa::kAvx512Bf16;
#endif
}

// The keys and values of the first `count` tokens go to their pages; several threads take heads, whose keys are apart.
void append(const PagedAttention& args, int64_t count, at::ScalarType type) {
  constexpr int64_t kMinAppended = 64;  // keys; a thread is not woken for fewer
  auto append_to_pages = row_kernels(type).append_to_pages;
#ifndef __aarch64__
  if (holds_pairs(type)) append_to_pages = avx512bf16::append_pairs;
#endif
  const int64_t grain = std::max<int64_t>(1, kMinAppended / std::max<int64_t>(1, count));
  at::parallel_for(0, args.groups, grain, [&](int64_t begin, int64_t end) {
    for (int64_t group = begin; group < end; ++group) append_to_pages(args, count, group);
  });
}

std::vector<PagedToken> tokens_of(const tensor::AttentionContext& context) {
  std::vector<PagedToken> tokens;
  for (const tensor::PagedKeyValues::Token& token : context.pages->tokens) {
    const int64_t first = context.window == 0 ? 0 : std::max<int64_t>(0, token.position - context.window + 1);
    tokens.push_back({token.pages, token.position, static_cast<int32_t>(first), token.last_key});
  }
  return tokens;
}

constexpr int64_t kNumbersOfTile = sizeof(DeviceTokens::Tile) / sizeof(int32_t);
constexpr int64_t kNumbersOfSingle = sizeof(DeviceTokens::Single) / sizeof(int32_t);

// Which tokens are in tiles, and which are not.
struct Runs {
  std::vector<DeviceTokens::Tile> tiles;
  std::vector<DeviceTokens::Single> singles;
};

Runs runs_of(const std::vector<tensor::PagedKeyValues::Token>& tokens) {
  Runs runs;
  const auto add = [&](size_t begin, size_t end) {
    if (end - begin < DeviceTokens::kLeastRun) {
      for (size_t token = begin; token < end; ++token)
        for (int32_t part = 0; part <= tokens[token].last_key / DeviceTokens::kKeysOfPart; ++part)
          runs.singles.push_back({static_cast<int32_t>(token), part});
      return;
    }
    for (size_t first = begin; first < end; first += DeviceTokens::kTile) {
      const size_t count = std::min<size_t>(DeviceTokens::kTile, end - first);
      int32_t last_key = 0;
      for (size_t token = first; token < first + count; ++token) last_key = std::max(last_key, tokens[token].last_key);
      runs.tiles.push_back({static_cast<int32_t>(first), static_cast<int32_t>(count), last_key + 1});
    }
  };
  for (size_t begin = 0, end; begin < tokens.size(); begin = end) {
    end = begin + 1;
    while (end < tokens.size() && tokens[end].pages == tokens[begin].pages &&
           tokens[end].position == tokens[end - 1].position + 1)
      ++end;
    add(begin, end);
  }
  std::stable_sort(runs.tiles.begin(), runs.tiles.end(),
                   [](const auto& a, const auto& b) { return a.num_keys > b.num_keys; });
  return runs;
}

// Of tokens that follow each other in one sequence the pages are written once.
tensor::PagedKeyValues::Sent sent_to(at::Device device, const std::vector<tensor::PagedKeyValues::Token>& tokens,
                                     int64_t page_tokens) {
  std::vector<int32_t> sequence_of_token;
  std::vector<std::vector<int32_t>> sequences;
  const int32_t* before = nullptr;
  size_t longest = 0;
  for (const tensor::PagedKeyValues::Token& token : tokens) {
    if (sequences.empty() || token.pages != before) sequences.emplace_back();
    before = token.pages;
    std::vector<int32_t>& pages = sequences.back();
    const int64_t touched = std::max(token.position, token.last_key) / page_tokens + 1;
    for (auto page = static_cast<int64_t>(pages.size()); page < touched; ++page) pages.push_back(token.pages[page]);
    longest = std::max(longest, pages.size());
    sequence_of_token.push_back(static_cast<int32_t>(sequences.size()) - 1);
  }
  const Runs runs = runs_of(tokens);
  std::vector<int32_t> numbers = std::move(sequence_of_token);  // in the order of device_tokens()
  for (const tensor::PagedKeyValues::Token& token : tokens) numbers.push_back(token.position);
  for (const tensor::PagedKeyValues::Token& token : tokens) numbers.push_back(token.last_key);
  for (const DeviceTokens::Tile& tile : runs.tiles)
    numbers.insert(numbers.end(), {tile.first, tile.count, tile.num_keys});
  for (const DeviceTokens::Single& single : runs.singles) numbers.insert(numbers.end(), {single.token, single.part});
  for (std::vector<int32_t>& pages : sequences) {
    pages.resize(longest);
    numbers.insert(numbers.end(), pages.begin(), pages.end());
  }
  return {.numbers = at::tensor(numbers, at::kInt).to(device),
          .count = static_cast<int64_t>(tokens.size()),
          .num_tiles = static_cast<int64_t>(runs.tiles.size()),
          .num_singles = static_cast<int64_t>(runs.singles.size()),
          .pages_of_sequence = static_cast<int64_t>(longest)};
}

DeviceTokens device_tokens(const tensor::PagedKeyValues::Sent& sent, int64_t window) {
  const int32_t* const sequences = sent.numbers.const_data_ptr<int32_t>();
  const int32_t* const tiles = sequences + 3 * sent.count;
  const int32_t* const singles = tiles + sent.num_tiles * kNumbersOfTile;
  return {.sequences = sequences,
          .positions = sequences + sent.count,
          .last_keys = sequences + 2 * sent.count,
          .tiles = reinterpret_cast<const DeviceTokens::Tile*>(tiles),
          .singles = reinterpret_cast<const DeviceTokens::Single*>(singles),
          .pages = singles + sent.num_singles * kNumbersOfSingle,
          .count = sent.count,
          .num_tiles = sent.num_tiles,
          .num_singles = sent.num_singles,
          .pages_of_sequence = sent.pages_of_sequence,
          .window = window};
}

// `qkv`: of each group `parts` rows. Appends to the pages where these hold keys and values too.
at::Tensor attend(const at::Tensor& qkv, int64_t parts, const tensor::AttentionContext& context, Heads heads,
                  int64_t layer) {
  const tensor::PagedKeyValues& pages = *context.pages;
  const DeviceOps* const device = device_ops(qkv);
  ESPALIER_CHECK(qkv.size(1) == 1 && qkv.size(0) == static_cast<int64_t>(pages.tokens.size()), "qkv is ", qkv.sizes(),
                 " of ", pages.tokens.size(), " tokens");
  ESPALIER_CHECK(context.dropout == 0, "not taken");
  const tensor::PagedKeyValues::Layer& kept = pages.layers.at(static_cast<size_t>(layer));
  const int64_t head_size = qkv.size(2) / (heads.groups * parts);
  ESPALIER_CHECK(
      qkv.size(2) == heads.groups * parts * head_size && kept.keys.size(1) == heads.groups &&
          kept.keys.size(2) == page_elements(qkv.device(), qkv.scalar_type(), pages.page_tokens, head_size) &&
          kept.keys.scalar_type() == qkv.scalar_type() && head_size <= max_paged_head_size(qkv.device()) &&
          pages.page_tokens <= kMaxPageTokens,
      "pages are ", kept.keys.sizes(), ", qkv is ", qkv.sizes());
  const at::Tensor& bias = context.relative_bias;
  ESPALIER_CHECK(!bias.defined() || (bias.size(0) == heads.queries && bias.is_contiguous() &&
                                     bias.scalar_type() == at::kFloat && bias.size(1) + 1 >= 2 * pages.capacity),
                 "bias of ", heads.queries, " heads for ", pages.capacity, " keys");
  const std::vector<PagedToken> tokens = device == nullptr ? tokens_of(context) : std::vector<PagedToken>();
  const at::Tensor result = at::empty({qkv.size(0), 1, heads.query_columns(head_size)}, qkv.options());
  const PagedAttention args{
      .qkv = qkv.const_data_ptr(),
      .result = result.data_ptr(),
      .keys = kept.keys.data_ptr(),
      .values = kept.values.data_ptr(),
      .tokens = tokens.data(),
      .groups = heads.groups,
      .queries = heads.per_group(),
      .parts = parts,
      .head_size = head_size,
      .page_tokens = pages.page_tokens,
      .scale = static_cast<float>(context.scale.value_or(1 / std::sqrt(static_cast<double>(head_size)))),
      .slopes = context.alibi_slopes.defined() ? context.alibi_slopes.const_data_ptr<float>() : nullptr,
      .relative_bias = bias.defined() ? bias.const_data_ptr<float>() : nullptr,
      .relative_keys = bias.defined() ? (bias.size(1) + 1) / 2 : 0,
      .soft_cap = static_cast<float>(context.soft_cap)};
  const bool appends = parts > heads.per_group();
  if (device != nullptr) {
    ESPALIER_CHECK(pages.sent.numbers.defined() && pages.sent.count == qkv.size(0), "tokens were not sent");
    const DeviceTokens sent = device_tokens(pages.sent, context.window);
    if (appends) device->append_to_pages(qkv.scalar_type(), args, sent);
    device->paged_attention(qkv.scalar_type(), args, sent);
    return result;
  }
  if (appends) append(args, qkv.size(0), qkv.scalar_type());
#ifndef __aarch64__
  if (holds_pairs(qkv.scalar_type())) {
    // Some tiles for every thread; more rows in each share what is done once for a tile.
    const int64_t rows = qkv.size(0) * heads.queries / (4 * at::get_num_threads());
    const int64_t most =
        std::max<int64_t>(1, std::clamp<int64_t>(rows, 16, avx512bf16::kPagedRows) / heads.per_group());
    const auto attend_tile = cpu_isa() == CpuIsa::kAmx ? amx::paged_attention_bf16 : avx512bf16::paged_attention_bf16;
    for_each_tile(tiles_of(tokens, most), heads.groups,
                  [&](const Tile& tile, int64_t group) { attend_tile(args, tile.first, tile.count, group); });
    return result;
  }
#endif
  const auto paged_attention_rows = row_kernels(qkv.scalar_type()).paged_attention;
  for_each_tile(tiles_of(tokens, kPagedTile), heads.queries,
                [&](const Tile& tile, int64_t head) { paged_attention_rows(args, tile.first, tile.count, head); });
  return result;
}

}  // namespace

int64_t max_paged_head_size(at::Device device) {
  return device_ops(device) != nullptr ? kMaxDeviceHeadSize : kMaxPagedHeadSize;
}

at::Tensor paged_attention(const at::Tensor& qkv, const tensor::AttentionContext& context, Heads heads, int64_t layer) {
  return attend(qkv, heads.per_group() + 2, context, heads, layer);
}

at::Tensor paged_cross_attention(const at::Tensor& query, const tensor::AttentionContext& context, Heads heads,
                                 int64_t layer) {
  ESPALIER_CHECK(!context.relative_bias.defined() && !context.alibi_slopes.defined() && context.window == 0,
                 "positions of two sequences have nothing to do with each other");
  return attend(query, heads.per_group(), context, heads, layer);
}

void fill_pages(const at::Tensor& key_value, std::span<const int32_t> pages, int64_t page_tokens, int64_t head_size,
                const tensor::PagedKeyValues::Layer& layer) {
  const int64_t groups = layer.keys.size(1), positions = key_value.size(0);
  const at::ScalarType type = key_value.scalar_type();
  ESPALIER_CHECK(key_value.size(1) == 1 && key_value.size(2) == groups * 2 * head_size && key_value.is_contiguous() &&
                     layer.keys.scalar_type() == type &&
                     layer.keys.size(2) == page_elements(key_value.device(), type, page_tokens, head_size) &&
                     positions <= static_cast<int64_t>(pages.size()) * page_tokens,
                 "keys and values are ", key_value.sizes(), " for ", pages.size(), " pages of ", layer.keys.sizes());
  PagedAttention args{.qkv = key_value.const_data_ptr(),
                      .result = nullptr,
                      .keys = layer.keys.data_ptr(),
                      .values = layer.values.data_ptr(),
                      .tokens = nullptr,
                      .groups = groups,
                      .queries = 0,
                      .parts = 2,
                      .head_size = head_size,
                      .page_tokens = page_tokens,
                      .scale = 1,
                      .slopes = nullptr};
  if (const DeviceOps* device = device_ops(key_value)) {
    std::vector<tensor::PagedKeyValues::Token> tokens;
    for (int64_t position = 0; position < positions; ++position)
      tokens.push_back({pages.data(), static_cast<int32_t>(position), 0, false});
    const tensor::PagedKeyValues::Sent sent = sent_to(key_value.device(), tokens, page_tokens);
    return device->append_to_pages(type, args, device_tokens(sent, /*window=*/0));
  }
  std::vector<PagedToken> tokens;
  for (int64_t position = 0; position < positions; ++position)
    tokens.push_back({pages.data(), static_cast<int32_t>(position), 0, 0});
  args.tokens = tokens.data();
  append(args, positions, type);
}

void send_tokens(tensor::PagedKeyValues& pages) {
  const at::Tensor& keys = pages.layers.back().keys;  // an encoder's layers, the first ones, have none
  if (!keys.defined() || device_ops(keys) == nullptr) return;
  pages.sent = sent_to(keys.device(), pages.tokens, pages.page_tokens);
}

int64_t page_elements(at::Device device, at::ScalarType type, int64_t page_tokens, int64_t head_size) {
  ESPALIER_CHECK(page_tokens % 2 == 0, "pages of ", page_tokens, " tokens");
  if (device_ops(device) != nullptr) return page_tokens * head_size;
#ifndef __aarch64__
  if (holds_pairs(type)) return avx512bf16::paged_elements(page_tokens, head_size);
#endif
  return page_elements_of_head(page_tokens, head_size);
}

}  // namespace espalier::kernels
