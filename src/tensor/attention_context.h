// What a position may attend to, as a description: never an s x s tensor. The same model code therefore serves
// training, bidirectional models, prefixes, packed documents, padding, sliding windows, context parallelism, attention
// to another sequence, and generation from a cache.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "spec/attention_backend.h"

namespace espalier::tensor {

// Keys and values of earlier positions of every layer, for generation. Rows are sequences, each of a length of its own.
//
// A row whose new positions are fewer than those of the pass is padded after them: take the padding off its length
// again when the pass is done, and the next pass writes over what was kept of it. Under causality no position sees what
// comes after it; other masks leave the padding out by last_key.
struct KeyValueCache {
  struct Layer {
    at::Tensor keys, values;  // [b, heads (groups that share keys), capacity, head size], compute type
    // Keys and values of the other sequence that the layer attends to, as kernels::cross_attention takes them;
    // undefined until the layer has computed them, once.
    at::Tensor cross;
  };
  std::vector<Layer> layers;
  int64_t capacity = 0;
  std::vector<int64_t> lengths;  // [b] positions that exist; the model adds the new ones after its forward pass

  void add_to_lengths(int64_t positions) {
    for (int64_t& length : lengths) length += positions;
  }
};

// Keys and values of many sequences in pages, and the tokens of one pass, which belong to several of them: one row of
// b = 1 in which token i is `tokens[i]`. The layers write the keys and values of these tokens to their pages.
struct PagedKeyValues {
  struct Layer {
    at::Tensor keys, values;  // [pages, groups, kernels::page_elements()], compute type
  };
  struct Token {
    const int32_t* pages = nullptr;  // of its sequence, in order
    int32_t position = 0;            // in its sequence
    int32_t last_key = 0;            // the last position that it sees
    bool is_long = false;            // its sequence may become longer than the model's short_positions (DecoderShape)
  };
  std::vector<Layer> layers;
  int64_t page_tokens = 0;
  int64_t capacity = 0;  // tokens of the longest sequence that there can be
  std::vector<Token> tokens;
  // The same where the pages are on a device, put there by kernels::send_tokens().
  struct Sent {
    at::Tensor numbers;  // int32: the lists of kernels::DeviceTokens, one after another
    int64_t count = 0, num_tiles = 0, num_singles = 0, pages_of_sequence = 0;
  };
  Sent sent;
};

struct AttentionContext {
  // Whose kernels compute it on a GPU. Those of cuDNN know `mask` and `scale` alone: with anything else of what follows
  // they are a bug.
  spec::AttentionBackend backend = spec::AttentionBackend::kFlash;
  // Until where a query sees keys: kCausal to its own position, kFull to the last key of its row.
  enum class Mask { kCausal, kFull };

  // A query sees the keys first .. last, both included, counted from the start of their row (what is in the cache
  // included). first: first_key, or 0 where that is undefined; last: last_key, or what `mask` says where that is
  // undefined. Keys that the row does not have are cut off the range. Where nothing is left of it the query sees no
  // key: its result is 0, and so is every gradient through it.
  //
  // [b, queries] int32, on the queries' device. Documents set first_key to their start, a prefix sets last_key to its
  // end or the query's position, whichever is later; padding sets the range of other positions so that it is left out,
  // and its own so that it is empty (first 0, last -1).
  Mask mask = Mask::kCausal;
  at::Tensor first_key, last_key;
  // 0: unlimited; otherwise a query sees no key that is `window` or more positions before it. With kCausal it thus
  // sees at most `window` keys, itself included.
  int64_t window = 0;
  // What scores are multiplied by; without one 1 / sqrt(head size).
  std::optional<double> scale;
  // c: scaled scores become c tanh(score / c), before any bias; 0: off.
  double soft_cap = 0;
  // Slope of each local query head, [heads] float32; undefined without ALiBi. The bias is slope * (key - query).
  at::Tensor alibi_slopes;
  // A bias of each local query head by distance, [heads, 2 n - 1] float32; undefined without one. Entry
  // n - 1 + (key - query) is added to the scaled score of that query and key, positions counted from the start of the
  // row (what is in the cache included); n is at least the number of keys of the longest row. It may carry a graph: its
  // gradient is the sum over all rows of the batch.
  at::Tensor relative_bias;
  KeyValueCache* cache = nullptr;
  // Of a sequence's own attention its pages; of attention to another sequence that one's, which hold it already.
  PagedKeyValues* pages = nullptr;  // with it `mask`, first_key, last_key and `cache` are not read

  // Dropout of attention probabilities: site = layer, counter = sample number, global head, query, key / 4.
  double dropout = 0;
  uint64_t seed = 0;
  std::vector<int64_t> sample_numbers;  // b entries
  int64_t first_head = 0;               // global number of local head 0, where the heads are split over ranks

  // [heads] float32, on the device of the queries: raised to each local head's largest scaled score that some query of
  // the pass sees, before a cap and any bias; undefined: nobody asks. Not with a cache or pages.
  at::Tensor max_logits;
};

}  // namespace espalier::tensor
