// What the engine asks of a model: one pass over some tokens of several sequences, whose keys and values are in pages.
//
// On the CPU every value that a pass computes for a token is a function of the token, its position, its own sequence
// (with is_long) and the model's weights alone, to the last bit: not of the other runs, of how the sequence was cut
// into runs, of which pages it is in, or of the number of threads. On a GPU all but its last bits are.
#pragma once

#include <cstdint>
#include <span>

namespace espalier::infer {

// Consecutive tokens of one sequence. What comes before them is in the cache, from earlier passes.
struct TokenRun {
  std::span<const int32_t> ids;    // at least one
  int64_t first_position = 0;      // of ids[0]: the number of tokens of the sequence that are in the cache
  std::span<const int32_t> pages;  // of the sequence, in order: room for first_position + ids.size() tokens, or more
  int64_t num_logits = 0;          // rows of logits wanted: after the last num_logits of `ids`
  bool whole = false;              // these tokens all see each other (a prompt of a prefix model; first_position 0)
  bool is_long = false;            // the sequence may become longer than the model's short_positions
  int32_t encoded = -1;            // of models with an encoder: what encode() returned
};

struct BatchModelShape {
  int64_t vocab_size = 0;   // ids that mean something; a row of logits has no more
  int64_t page_tokens = 0;  // a power of two
  int64_t num_pages = 0;
  int64_t max_positions = 0;  // that the model has learned; 0: any
  // > 0: every value of a token also depends on whether its sequence may become longer than this (DecoderShape).
  int64_t short_positions = 0;
  bool whole_prompt = false;  // prompts are run as `whole`, so they are neither chunked nor shared
  bool has_encoder = false;
  int64_t encoder_positions = 0;  // that its encoder has learned; 0: any
};

class BatchModel {
 public:
  virtual ~BatchModel() = default;
  virtual BatchModelShape shape() const = 0;

  // Writes the keys and values of the runs' tokens to their pages, and to `logits` the rows that are wanted, run after
  // run, [rows, vocab_size] in fp32. No sequence has two runs in one pass. Pages that hold only tokens before every
  // run's first may be shared by several runs.
  virtual void forward(std::span<const TokenRun> runs, float* logits) = 0;

  // Of models with an encoder: a number for `ids` as the encoder has made them, kept until it is released.
  virtual int32_t encode(std::span<const int32_t> ids) = 0;
  virtual void release(int32_t encoded) = 0;
};

}  // namespace espalier::infer
