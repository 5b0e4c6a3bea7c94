// Text generation with a key/value cache: one pass over the prompts, then one position at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "infer/sampling.h"
#include "models/decoder.h"
#include "models/neighbor_reader.h"

namespace espalier::infer {

// The neighbours of each of some chunks, given as their ids, one chunk after another.
using FindNeighbors = std::function<std::vector<models::ChunkNeighbors>(std::span<const int32_t> ids)>;

struct GenerateConfig {
  int64_t tokens_to_generate = 64;
  SamplingConfig sampling;
  std::vector<int32_t> stop_ids;  // the end-of-document token; it ends the text and is part of generated_ids
  // Of a model whose prompts an encoder reads: what its own text begins with, which is not part of generated_ids.
  std::optional<int32_t> begin_id;
  // Of a model that reads neighbours (models/neighbor_reader.h); null: it reads its text alone. continue_prompts.h.
  FindNeighbors find_neighbors = nullptr;
};

struct Generated {
  std::vector<int32_t> prompt_ids, generated_ids;
  std::vector<double> logprobs;                      // of generated_ids, under the unmodified distribution
  std::vector<std::vector<int64_t>> neighbors = {};  // ChunkNeighbors::ids of every chunk that was read to its end
};

// Called for every new token of every row, in order.
using TokenCallback = std::function<void(size_t row, int32_t id)>;

// UserError where the longest prompt and the new tokens are more than the positions that the model has learned; with an
// encoder, which reads the prompts, where either is.
void check_lengths(const models::DecoderShape& model, const std::vector<std::vector<int32_t>>& prompts,
                   int64_t new_tokens);

// Continues each prompt (at least one id each), or answers it where there is an encoder. All prompts form one batch, in
// which each row has its own length: shorter prompts are padded at their end for the first pass, and nothing sees that.
// The tokens of a prompt see those before them, or with DecoderShape::whole_prompt all of it. A model with learned
// positions cannot go beyond max_position_embeddings: UserError.
std::vector<Generated> generate(const models::Decoder& model, at::ScalarType compute_type,
                                const std::vector<std::vector<int32_t>>& prompts, const GenerateConfig& config,
                                const TokenCallback& on_token = {});

}  // namespace espalier::infer
