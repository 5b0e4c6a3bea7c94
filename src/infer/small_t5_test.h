// A T5 small enough for tests of this library, with sizes that fit no block of a kernel and random weights.
#pragma once

#include <ATen/ATen.h>

#include "models/t5/model.h"

namespace espalier::infer {

struct SmallT5 {
  static constexpr int64_t kVocabulary = 61;

  // `longest`: positions of encoder and decoder where they are learned.
  SmallT5(families::T5Positions positions, int64_t longest, at::ScalarType type = at::kFloat)
      : config(config_of(positions, longest)),
        params(families::t5_params(config), {}, type, /*with_grad=*/false),
        model(nn::LayerBuilder{params, dist::single_process()}, config, {0, config.last_depth() + 1}, {}) {
    params.initialize(7, [](tensor::Param&, const at::Tensor&) {});
  }

  families::T5Config config;
  tensor::ParamSet params;
  models::T5Model model;

 private:
  static families::T5Config config_of(families::T5Positions positions, int64_t longest) {
    families::T5Config config;
    config.num_layers = 3;
    config.decoder_num_layers = 2;
    config.hidden_size = 20;
    config.ffn_hidden_size = 33;
    config.num_attention_heads = 3;
    config.kv_channels = 7;
    config.positions = positions;
    config.max_position_embeddings = positions == families::T5Positions::kLearned ? longest : 0;
    config.relative_attention_num_buckets = 8;
    config.relative_attention_max_distance = 12;
    config.vocab_size = kVocabulary;
    config.padded_vocab_size = kVocabulary;
    config.scale_attention = positions == families::T5Positions::kLearned;
    config.init_method_std = 0.4;  // so that the most likely tokens differ
    config.hidden_dropout = config.attention_dropout = 0;
    return config;
  }
};

}  // namespace espalier::infer
