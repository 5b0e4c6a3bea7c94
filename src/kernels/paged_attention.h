// Attention of the tokens of several sequences to keys and values in pages (Kwon et al. 2023), without a graph.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "kernels/heads.h"
#include "tensor/attention_context.h"

namespace espalier::kernels {

// qkv: [tokens, 1, heads.columns(head_size)], compute type, contiguous; token i is
// context.pages->tokens[i]. Its keys and values go to its page of layer `layer`, then it attends to the positions that
// it sees: scale, window, slopes and the bias by distance are the context's. Result: [tokens, 1, heads.queries *
// head_size]; a token's row depends on its query and those keys and values alone, to the last bit; on a device also on
// whether the pass has many tokens of its sequence that follow each other (DeviceTokens::kLeastRun), where values that
// are not finite spread to neighbours that do not see them. Heads have at most max_paged_head_size() channels.
at::Tensor paged_attention(const at::Tensor& qkv, const tensor::AttentionContext& context, Heads heads, int64_t layer);

// The same to keys and values of another sequence, which are in the context's pages already: token i sees the positions
// up to its last_key; its own position says nothing. query: [tokens, 1, heads.queries * head_size].
at::Tensor paged_cross_attention(const at::Tensor& query, const tensor::AttentionContext& context, Heads heads,
                                 int64_t layer);
// Puts keys and values as cross_attention takes them, key_value: [positions, 1, groups * (key, value)], into `pages`;
// head_size: of one key.
void fill_pages(const at::Tensor& key_value, std::span<const int32_t> pages, int64_t page_tokens, int64_t head_size,
                const tensor::PagedKeyValues::Layer& layer);

// Before the first layer of a pass, with the pass's tokens in `pages`: puts them where the pages are. On the CPU
// nothing is to be done.
void send_tokens(tensor::PagedKeyValues& pages);

// Elements that the keys, or the values, of one head take in a page of an even number of tokens; on a device, a power
// of two. Their order is that of the kernels of the device, of the type and of the instruction set in force: who else
// moves pages moves whole ones.
int64_t page_elements(at::Device device, at::ScalarType type, int64_t page_tokens, int64_t head_size);

int64_t max_paged_head_size(at::Device device = at::kCPU);

}  // namespace espalier::kernels
