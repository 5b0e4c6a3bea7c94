// A model of a checkpoint as the engine runs it, where its weights are. Of one with an encoder the sequences are the
// decoder's; what the encoder makes of a request it makes of that request alone, and the keys and values that the
// decoder's layers read of it are computed once. Where tensor ranks hold parts of the model, each of them has one of
// these, with the pages of its heads, and all make the same calls in the same order (leading_model.h); all have all
// logits.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "dist/grid.h"
#include "infer/engine/batch_model.h"
#include "models/decoder.h"
#include "tensor/attention_context.h"

namespace espalier::infer {

struct DecoderModelConfig {
  int64_t page_tokens = 64;  // a power of two, 2 to 64
  int64_t num_pages = 0;     // of all sequences together
  // Of the longest sequence; 0, or more than the model's own limit: that limit, or without one all pages.
  int64_t max_positions = 0;
};

// What the weights are, all of one type and on one device.
struct Weights {
  at::ScalarType type;
  at::Device device = at::kCPU;
};

// Bytes of the keys and values of a page, all layers together.
int64_t page_bytes(const models::DecoderShape& shape, const Weights& weights, int64_t page_tokens);

// What BatchModel promises of bits holds on the CPU because the weights have no gradients: kernels/row_product.h
// multiplies them, and kernels/paged_attention.h attends; norms, activations and embeddings work row by row. On a GPU
// cuBLAS multiplies, by an algorithm that it chooses for the number of rows: the last bits of what a row becomes may
// depend on how many there are.
class DecoderModel : public BatchModel {
 public:
  // `model` and its weights, which have no gradients, outlive it. `ranks`: over which they are split.
  DecoderModel(const models::Decoder& model, const Weights& weights, const DecoderModelConfig& config,
               const dist::Group& ranks = dist::single_process().tensor);

  BatchModelShape shape() const override;
  void forward(std::span<const TokenRun> runs, float* logits) override;
  int32_t encode(std::span<const int32_t> ids) override;
  void release(int32_t encoded) override;

 private:
  // What an encoder has made of a request's tokens: where its keys and values are.
  struct Read {
    std::vector<int32_t> pages;
    int32_t length = 0;
  };
  std::vector<int32_t> take_read_pages(size_t count);

  // Sets the tokens of the pages, and gives their ids and positions, [1, tokens] each, on the device.
  std::pair<at::Tensor, at::Tensor> inputs_of(std::span<const TokenRun> runs);
  // [rows, part of the vocabulary] -> the first vocab_size columns of the whole.
  void gather_logits(const at::Tensor& part, float* logits);

  const models::Decoder& model_;
  const dist::Group& ranks_;
  int64_t widest_ = 0;  // the largest part of the vocabulary: that of all ranks but the last ones; 0: not known yet
  models::DecoderShape shape_;
  at::Device device_;
  DecoderModelConfig config_;
  tensor::PagedKeyValues pages_;
  // Of models with an encoder; as many pages as were ever needed at once.
  tensor::PagedKeyValues read_pages_;
  std::vector<int32_t> free_read_pages_;
  std::map<int32_t, Read> read_;  // by what encode() returned
  int32_t next_read_ = 0;
};

}  // namespace espalier::infer
