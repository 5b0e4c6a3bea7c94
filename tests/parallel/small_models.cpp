#include "tests/parallel/small_models.h"

#include <ATen/ATen.h>

#include <random>

#include "models/bert/batch.h"
#include "models/bert/model.h"
#include "models/gpt/model.h"
#include "models/t5/batch.h"
#include "models/t5/model.h"

namespace espalier::test {
namespace {

constexpr int64_t kSequence = 16, kDecoderSequence = 8, kVocabulary = 61, kPad = 60;

std::vector<int64_t> random_ids(int64_t number, int64_t count) {
  std::mt19937 random(static_cast<unsigned>(number) + 99);
  std::vector<int64_t> ids(static_cast<size_t>(count));
  for (int64_t& id : ids) id = random() % kPad;
  return ids;
}

// What the families' configurations have in common.
template <class Config>
Config with_sizes(Config config) {
  config.hidden_size = 24;
  config.ffn_hidden_size = 40;
  config.num_attention_heads = 4;
  config.kv_channels = 6;
  config.vocab_size = config.padded_vocab_size = kVocabulary;
  config.hidden_dropout = 0.1;
  config.attention_dropout = 0;
  return config;
}

template <class Model, class Config>
auto builder_of(const Config& config) {
  return [config](const nn::LayerBuilder& builder, const plan::DepthRange& part, const models::StageOptions& options) {
    return std::make_unique<Model>(builder, config, part, options);
  };
}

SmallModel small_gpt() {
  auto config = with_sizes(families::GptConfig());
  config.num_layers = kSmallLayers;
  config.num_query_groups = 2;
  config.qk_layernorm = true;
  config.position_embedding = families::PositionEmbedding::kAlibi;
  config.embed_layernorm = true;
  const auto batch = [](int64_t number) {
    const at::Tensor text = at::tensor(random_ids(number, kSequence + 1), at::kLong).view({1, -1});
    tensor::Batch batch;
    batch.sample_numbers = {number};
    batch.ids = text.narrow(1, 0, kSequence).contiguous();
    batch.labels = text.narrow(1, 1, kSequence).contiguous();
    batch.loss_mask = at::ones({1, kSequence});
    batch.positions = at::arange(kSequence, at::kLong).view({1, kSequence});
    return batch;
  };
  return {families::gpt_params(config), builder_of<models::GptModel>(config), batch};
}

SmallModel small_bert() {
  auto config = with_sizes(families::BertConfig());
  config.num_layers = kSmallLayers;
  config.max_position_embeddings = kSequence;
  const auto batch = [](int64_t number) {
    const std::vector<int64_t> text = random_ids(number, kSequence);
    std::vector<int64_t> types(text.size(), 0), labels(text.size(), -1), mask(text.size(), 0), used(text.size(), 1);
    for (size_t at = 1; at < text.size(); at += 3) labels[at] = (text[at] + 1) % kPad, mask[at] = 1;
    std::fill(types.begin() + 7, types.end(), 1);
    return models::make_bert_batch({{number, {{text, types, labels, {number % 2}, mask, used, {0}}, 0}}}, true);
  };
  return {families::bert_params(config), builder_of<models::BertModel>(config), batch};
}

// The encoder's texts end in padding of different lengths.
SmallModel small_t5() {
  auto config = with_sizes(families::T5Config());
  config.num_layers = config.decoder_num_layers = kSmallLayers / 2;
  config.max_position_embeddings = kSequence;
  const auto batch = [](int64_t number) {
    std::vector<int64_t> encoder = random_ids(number, kSequence),
                         text = random_ids(number + 7919, kDecoderSequence + 1);
    std::fill(encoder.end() - 1 - number % 5, encoder.end(), kPad);
    const std::vector<int64_t> decoder(text.begin(), text.end() - 1), labels(text.begin() + 1, text.end()),
        mask(decoder.size(), 1);
    return models::make_t5_batch({{number, {{encoder, decoder, labels, mask, {0}}, 0}}}, kPad);
  };
  return {families::t5_params(config), builder_of<models::T5Model>(config), batch};
}

}  // namespace

SmallModel small_model(SmallFamily family) {
  switch (family) {
    case SmallFamily::kGpt: return small_gpt();
    case SmallFamily::kBert: return small_bert();
    case SmallFamily::kT5: return small_t5();
  }
  return {};
}

}  // namespace espalier::test
