// GPT (Radford et al. 2019) as Megatron builds it: pre-norm blocks; BLOOM (Le Scao et al. 2022) is this with ALiBi and
// a layer norm behind the embedding. Legend: s sequence, b micro-batch, h hidden, V padded vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "nn/attention.h"
#include "nn/embedding.h"
#include "nn/layer_norm.h"
#include "nn/mlp.h"
#include "pipeline/recompute.h"
#include "pipeline/stage.h"
#include "spec/gpt.h"

namespace espalier::models {

class GptBlock {
 public:
  GptBlock(tensor::ParamSet& params, const spec::GptConfig& config, int64_t layer);
  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) const;  // [s, b, h] -> [s, b, h]
  void visit(tensor::ParamVisitor& visitor);

 private:
  nn::LayerNorm input_layernorm_;
  nn::SelfAttention self_attention_;
  nn::LayerNorm post_attention_layernorm_;
  nn::Mlp mlp_;
  bool residual_from_layernorm_;
};

class GptModel : public pipeline::Stage {
 public:
  // `params` holds spec::gpt_params(config) and outlives the model. `seed` keys dropout.
  GptModel(tensor::ParamSet& params, const spec::GptConfig& config, const pipeline::RecomputePlan& recompute,
           uint64_t seed);

  // One loss term, "lm loss".
  pipeline::StageOutput forward(const pipeline::StageInput& input) override;
  void visit(tensor::ParamVisitor& visitor) override;

  // For generation and scoring, no graph: [b, s] ids at `positions` -> hidden states behind the final norm, [s, b, h].
  // A cache in the context receives the keys and values of these positions.
  at::Tensor hidden_states(const at::Tensor& ids, const at::Tensor& positions, const nn::ForwardContext& context) const;
  at::Tensor logits(const at::Tensor& hidden) const;  // [..., h] -> [..., V] fp32

  const spec::GptConfig& config() const { return config_; }
  // The attention description that belongs to the model itself (ALiBi slopes), to be completed by the caller.
  tensor::AttentionContext attention_context() const;

 private:
  at::Tensor embed(const at::Tensor& ids, const at::Tensor& positions, const nn::ForwardContext& context) const;
  nn::ForwardContext training_context(const pipeline::StageInput& input) const;

  spec::GptConfig config_;
  uint64_t seed_;
  pipeline::RecomputePlan recompute_;
  at::Tensor alibi_slopes_;  // [heads] fp32, undefined without ALiBi
  nn::Embedding word_embeddings_;
  std::optional<nn::LayerNorm> embedding_norm_;
  std::optional<nn::Embedding> position_embeddings_;
  std::vector<GptBlock> layers_;
  nn::LayerNorm final_layernorm_;
  tensor::Param& output_weight_;
  tensor::GradQueue& queue_;
};

}  // namespace espalier::models
