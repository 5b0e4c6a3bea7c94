// T5 against a plain one of ATen in double, written from the formulas: the loss, and the gradient of every parameter.
#include "models/t5/model.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "models/t5/batch.h"
#include "pipeline/runner.h"

namespace espalier::models {
namespace t5_model_test {

constexpr int64_t kEncoder = 13, kDecoder = 7, kVocabulary = 29, kPad = 5;

// Heads that are together narrower than the residual stream, and fewer layers of the decoder than of the encoder.
families::T5Config awkward_config() {
  families::T5Config config;
  config.num_layers = 3;
  config.decoder_num_layers = 2;
  config.hidden_size = 24;
  config.ffn_hidden_size = 40;
  config.num_attention_heads = 3;
  config.kv_channels = 7;
  config.max_position_embeddings = 17;
  config.vocab_size = kVocabulary;
  config.padded_vocab_size = 33;
  config.hidden_dropout = config.attention_dropout = 0;
  return config;
}

// A sample of which the encoder has `encoder_used` tokens and the decoder `decoder_used`; padding as upstream's. The id
// `pad` is among the others too, but at no sample's end.
SampleRow sample_of(int64_t number, int64_t encoder_used, int64_t decoder_used, int64_t pad = kPad) {
  std::vector<int64_t> encoder(kEncoder, pad), decoder(kDecoder, pad), labels(kDecoder, -1), mask(kDecoder, 0);
  for (int64_t at = 0; at < encoder_used; ++at) encoder[static_cast<size_t>(at)] = (at * 7 + number * 3) % kVocabulary;
  for (int64_t at = 0; at < decoder_used; ++at) {
    const auto place = static_cast<size_t>(at);
    decoder[place] = (at * 5 + number * 2 + 1) % kVocabulary;
    labels[place] = (at * 11 + number) % kVocabulary;
    mask[place] = 1;
  }
  return {number, {{encoder, decoder, labels, mask, {0}}, 0}};
}

std::vector<SampleRow> awkward_samples() { return {sample_of(0, 13, 7), sample_of(1, 6, 4), sample_of(2, 2, 2)}; }

// The same from ATen, [b, s, h], all in double.
class PlainT5 {
 public:
  PlainT5(const families::T5Config& config, const std::map<std::string, at::Tensor>& values) : config_(config) {
    for (const auto& [name, value] : values) values_[name] = value.to(at::kDouble).clone().requires_grad_(true);
  }

  // Mean over the tokens to predict. `used`: tokens of each sample's encoder that are not padding.
  at::Tensor loss(const std::vector<SampleRow>& rows, const std::vector<int64_t>& used) const {
    at::Tensor encoder_keys = at::zeros({static_cast<int64_t>(rows.size()), 1, kEncoder}, at::kBool);
    for (size_t row = 0; row < rows.size(); ++row)
      encoder_keys[static_cast<int64_t>(row)].slice(1, 0, used[row]).fill_(1);
    const at::Tensor mask = stacked(rows, 3).to(at::kDouble);
    at::Tensor x = embedded(stacked(rows, 0));
    for (int64_t layer = 0; layer < config_.num_layers; ++layer) {
      const std::string name = "encoder.layers." + std::to_string(layer) + ".";
      x = mlp(self_attention(x, name, encoder_keys), name, "post_attention_layernorm");
    }
    const at::Tensor encoded = norm(x, "encoder.final_layernorm");
    x = embedded(stacked(rows, 1));
    const at::Tensor earlier = at::ones({kDecoder, kDecoder}, at::kBool).tril().unsqueeze(0);
    for (int64_t layer = 0; layer < config_.decoder_num_layers; ++layer) {
      const std::string name = "decoder.layers." + std::to_string(layer) + ".";
      x = cross_attention(self_attention(x, name, earlier), encoded, name, encoder_keys);
      x = mlp(x, name, "post_inter_attention_layernorm");
    }
    at::Tensor logits = at::matmul(norm(x, "decoder.final_layernorm"),
                                   p(config_.tie_output ? "word_embeddings.weight" : "lm_head.weight").t());
    if (config_.add_bias_linear) logits = logits + p("lm_head.bias");
    const at::Tensor losses =
        -at::log_softmax(logits, 2).gather(2, stacked(rows, 2).clamp_min(0).unsqueeze(2)).squeeze(2);
    return (losses * mask).sum() / mask.sum();
  }
  const std::map<std::string, at::Tensor>& values() const { return values_; }

 private:
  const at::Tensor& p(const std::string& name) const { return values_.at(name); }
  static at::Tensor stacked(const std::vector<SampleRow>& rows, size_t field) {
    std::vector<at::Tensor> all;
    for (const SampleRow& row : rows) all.push_back(at::tensor(row.sample.arrays[field], at::kLong));
    return at::stack(all);
  }
  at::Tensor embedded(const at::Tensor& ids) const {
    return at::embedding(p("word_embeddings.weight"), ids) +
           p("position_embeddings.weight").narrow(0, 0, ids.size(1)).unsqueeze(0);
  }
  at::Tensor linear(const at::Tensor& x, const std::string& name) const {
    const at::Tensor product = at::matmul(x, p(name + ".weight").t());
    return config_.add_bias_linear ? product + p(name + ".bias") : product;
  }
  at::Tensor norm(const at::Tensor& x, const std::string& name) const {
    const bool rms = config_.normalization == spec::Normalization::kRmsNorm;
    const at::Tensor centred = rms ? x : x - x.mean(-1, true);
    const at::Tensor y =
        centred / (centred.square().mean(-1, true) + config_.layernorm_epsilon).sqrt() * p(name + ".weight");
    return rms ? y : y + p(name + ".bias");
  }
  at::Tensor activation(const at::Tensor& x) const {
    if (config_.activation == spec::Activation::kGeluTanh)
      return 0.5 * x * (1 + (std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)).tanh());
    const auto gelu = [](const at::Tensor& a) { return a * 0.5 * (1 + (a / std::sqrt(2.0)).erf()); };
    if (config_.activation == spec::Activation::kGeluErf) return gelu(x);
    const std::vector<at::Tensor> halves = x.chunk(2, -1);  // geglu
    return gelu(halves[0]) * halves[1];
  }
  // Columns of each head: `parts` of kv_channels. -> [parts, b, heads, s, kv_channels]
  at::Tensor heads_of(const at::Tensor& x, int64_t parts) const {
    return x.view({x.size(0), x.size(1), config_.num_attention_heads, parts, config_.kv_channels})
        .permute({3, 0, 2, 1, 4});
  }
  // `seen`: [b or 1, queries or 1, keys]
  at::Tensor mixed(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                   const at::Tensor& seen) const {
    at::Tensor scores = at::matmul(query, key.transpose(-1, -2)) / std::sqrt(static_cast<double>(config_.kv_channels));
    scores = scores.masked_fill(seen.logical_not().unsqueeze(1), -INFINITY);
    const at::Tensor result = at::matmul(at::softmax(scores, -1), value).permute({0, 2, 1, 3});
    return result.reshape({result.size(0), result.size(1), -1});
  }
  at::Tensor self_attention(const at::Tensor& x, const std::string& layer, const at::Tensor& seen) const {
    const at::Tensor in = norm(x, layer + "input_layernorm");
    const at::Tensor heads = heads_of(linear(in, layer + "self_attention.query_key_value"), 3);
    return linear(mixed(heads[0], heads[1], heads[2], seen), layer + "self_attention.dense") +
           (config_.residual_from_layernorm ? in : x);
  }
  at::Tensor cross_attention(const at::Tensor& x, const at::Tensor& encoded, const std::string& layer,
                             const at::Tensor& seen) const {
    const at::Tensor in = norm(x, layer + "post_attention_layernorm");
    const at::Tensor query = heads_of(linear(in, layer + "inter_attention.query"), 1);
    const at::Tensor pair = heads_of(linear(encoded, layer + "inter_attention.key_value"), 2);
    return linear(mixed(query[0], pair[0], pair[1], seen), layer + "inter_attention.dense") +
           (config_.residual_from_layernorm ? in : x);
  }
  at::Tensor mlp(const at::Tensor& x, const std::string& layer, const std::string& norm_name) const {
    const at::Tensor in = norm(x, layer + norm_name);
    return linear(activation(linear(in, layer + "mlp.dense_h_to_4h")), layer + "mlp.dense_4h_to_h") +
           (config_.residual_from_layernorm ? in : x);
  }

  families::T5Config config_;
  std::map<std::string, at::Tensor> values_;
};

using Kind = plan::Recompute::Kind;

struct WholeT5 {
  explicit WholeT5(const families::T5Config& config, const plan::Recompute& recompute = {})
      : params(families::t5_params(config), {}, at::kFloat, true),
        model(nn::LayerBuilder{params, dist::single_process()}, config, {0, config.last_depth() + 1},
              {.recompute = recompute, .seed = 11}) {
    // Also what begins with 0 or 1, so that no gradient is left out.
    at::Generator generator = at::detail::createCPUGenerator(3);
    for (tensor::Param& param : params.params()) {
      const at::Tensor noise = at::randn(param.value.sizes(), generator, at::kFloat) * 0.2;
      param.value.copy_(param.spec->init.kind == spec::Init::Kind::kConstant ? noise + param.spec->init.value : noise);
      values[param.spec->name] = param.value;
    }
  }
  // The mean loss over one micro-batch, and gradients.
  double train(const tensor::Batch& batch) {
    const double targets = batch.targets.at(0).second;
    const auto totals = runner
                            .train({{plan::Action::Kind::kForward, 0}, {plan::Action::Kind::kBackward, 0}}, {batch},
                                   [&](const pipeline::LossTerm& term) {
                                     EXPECT_EQ(term.count.item<double>(), targets);
                                     return 1 / targets;
                                   })
                            .totals();
    EXPECT_EQ(totals.size(), 1u);
    EXPECT_EQ(totals[0].name, "lm loss");
    return totals[0].sum / totals[0].count;
  }

  tensor::ParamSet params;
  T5Model model;
  std::map<std::string, at::Tensor> values;
  pipeline::Runner runner{{&model}, dist::single_process().pipeline, params.grad_queue()};
};

void expect_loss_and_gradients(const families::T5Config& config, const plan::Recompute& recompute = {}) {
  WholeT5 t5(config, recompute);
  const double loss = t5.train(make_t5_batch(awkward_samples(), kPad));
  const PlainT5 plain(config, t5.values);
  const at::Tensor wanted = plain.loss(awkward_samples(), {13, 6, 2});
  EXPECT_NEAR(loss, wanted.item<double>(), 1e-5);
  wanted.backward();
  for (tensor::Param& param : t5.params.params()) {
    const at::Tensor& gradient = plain.values().at(param.spec->name).grad();
    const double largest = gradient.abs().max().item<double>();
    EXPECT_GT(largest, 0) << param.spec->name;
    EXPECT_LE((param.grad.to(at::kDouble) - gradient).abs().max().item<double>(), 1e-5 * std::max(1.0, largest))
        << param.spec->name;
  }
}

TEST(T5Model, LossAndEveryGradientAreThoseOfPlainFormulas) { expect_loss_and_gradients(awkward_config()); }

TEST(T5Model, SoAreThoseOfADecoderLongerThanItsEncoder) {
  families::T5Config config = awkward_config();
  config.num_layers = 1;
  config.decoder_num_layers = 4;
  expect_loss_and_gradients(config);
}

TEST(T5Model, SoAreThoseWithResidualsFromTheNorms) {
  families::T5Config config = awkward_config();
  config.residual_from_layernorm = true;
  config.activation = spec::Activation::kGeluErf;
  config.layernorm_epsilon = 1e-3;
  expect_loss_and_gradients(config);
}

// The choices of T5 1.1 but for its positions.
TEST(T5Model, SoAreThoseWithRmsNormsWithoutBiasesAndWithAnOutputOfItsOwn) {
  families::T5Config config = awkward_config();
  config.normalization = spec::Normalization::kRmsNorm;
  config.add_bias_linear = false;
  config.tie_output = false;
  config.activation = spec::Activation::kGeglu;
  expect_loss_and_gradients(config);
}

TEST(T5Model, SoAreThoseWithRecompute) {
  expect_loss_and_gradients(awkward_config(), {Kind::kUniform, 2});
  expect_loss_and_gradients(awkward_config(), {Kind::kUniform, 4});
  for (int64_t layers = 1; layers <= 4; ++layers) expect_loss_and_gradients(awkward_config(), {Kind::kBlock, layers});
}

// With dropout in every place: the second run of a layer draws the masks of the first.
TEST(T5Model, RecomputeChangesNoBit) {
  families::T5Config config = awkward_config();
  config.hidden_dropout = config.attention_dropout = 0.2;
  const tensor::Batch batch = make_t5_batch(awkward_samples(), kPad);
  WholeT5 plain(config);
  const double loss = plain.train(batch);
  for (const plan::Recompute& recompute : {plan::Recompute{Kind::kUniform, 1},
                                           {Kind::kUniform, 2},
                                           {Kind::kUniform, 5},
                                           {Kind::kBlock, 2},
                                           {Kind::kBlock, 4}}) {
    WholeT5 again(config, recompute);
    EXPECT_EQ(again.train(batch), loss);
    for (size_t i = 0; i < plain.params.params().size(); ++i)
      EXPECT_TRUE(at::equal(again.params.params()[i].grad, plain.params.params()[i].grad))
          << plain.params.params()[i].spec->name << ", " << recompute.num_layers;
  }
}

// What is in the padding changes nothing to the last bit.
TEST(T5Model, PaddingIsNotSeen) {
  const auto loss_with_pad = [](int64_t pad) {
    WholeT5 t5(awkward_config());
    const tensor::Batch batch = make_t5_batch({sample_of(1, 6, 4, pad), sample_of(2, 2, 2, pad)}, pad);
    return t5.runner.evaluate({{plan::Action::Kind::kForward, 0}}, {batch}).at(0).sum;
  };
  EXPECT_EQ(loss_with_pad(kPad), loss_with_pad(28));
}

TEST(T5Model, VisitsExactlyTheParametersOfItsSpecListInOrder) {
  for (const bool tie_output : {false, true})
    for (const bool add_bias_linear : {false, true}) {
      families::T5Config config = awkward_config();
      config.tie_output = tie_output;
      config.add_bias_linear = add_bias_linear;
      WholeT5 t5(config);
      std::vector<std::string> names, expected;
      tensor::ParamVisitor visitor([&](const std::string& name, tensor::Param& param) {
        EXPECT_EQ(name, param.spec->name);
        names.push_back(name);
      });
      t5.model.visit(visitor);
      for (const spec::ParamSpec& spec : families::t5_params(config)) expected.push_back(spec.name);
      EXPECT_EQ(names, expected);
    }
}

}  // namespace t5_model_test
}  // namespace espalier::models
