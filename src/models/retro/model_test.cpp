// Retro beside a plain one of ATen in double, written token by token from the rule of chunks: logits, loss, and the
// gradient of every parameter; and what no token may depend on.
#include "models/retro/model.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "models/gpt/model.h"
#include "models/retro/batch.h"
#include "pipeline/runner.h"
#include "plan/activation_memory.h"
#include "tensor/saved.h"

namespace espalier::models {
namespace retro_model_test {

constexpr int64_t kChunk = 5, kChunks = 3, kNeighbors = 2, kRetrieved = 2 * kChunk, kWords = 29, kEnd = 28;

families::RetroConfig awkward_retro() {
  families::RetroConfig config;
  config.gpt.num_layers = 9;  // the sixth and the ninth retrieve
  config.gpt.hidden_size = 24;
  config.gpt.ffn_hidden_size = 40;
  config.gpt.num_attention_heads = 3;
  config.gpt.kv_channels = 7;
  config.gpt.max_position_embeddings = 17;
  config.gpt.vocab_size = kWords;
  config.gpt.padded_vocab_size = 33;
  config.gpt.hidden_dropout = config.gpt.attention_dropout = 0;
  config.encoder_hidden_dropout = config.encoder_attention_dropout = 0;
  config.retrieves = true;
  config.encoder_layers = 3;
  config.chunk_length = kChunk;
  config.num_neighbors = kNeighbors;
  config.num_retrieved_chunks = kRetrieved / kChunk;
  return config;
}

// `counts`: neighbours that each chunk has.
SampleRow retro_sample(int64_t number, const std::vector<int64_t>& counts) {
  std::vector<int64_t> text, tokens;
  for (int64_t at = 0; at <= kChunk * kChunks; ++at) text.push_back((at * 7 + number * 3) % kWords);
  for (int64_t chunk = 0; chunk < kChunks; ++chunk)
    for (int64_t neighbor = 0; neighbor < kNeighbors; ++neighbor)
      for (int64_t at = 0; at < kRetrieved; ++at)
        tokens.push_back(neighbor < counts[static_cast<size_t>(chunk)]
                             ? (at * 11 + number + chunk * 5 + neighbor * 3) % kWords
                             : kEnd);
  return {number, {{text, tokens, counts}, 0}};
}

std::vector<SampleRow> retro_samples() { return {retro_sample(0, {2, 2, 2}), retro_sample(5, {1, 2, 0})}; }

class PlainRetro {
 public:
  PlainRetro(const families::RetroConfig& config, const std::map<std::string, at::Tensor>& values) : config_(config) {
    for (const auto& [name, value] : values) values_[name] = value.to(at::kDouble).clone().requires_grad_(true);
  }

  // Of one sample: [s, V].
  at::Tensor logits(const data::Sample& sample) const {
    const std::vector<int64_t>& text = sample.arrays[0];
    const int64_t s = kChunk * kChunks;
    at::Tensor x = embedded(at::tensor(text, at::kLong).narrow(0, 0, s));
    const at::Tensor earlier = at::ones({s, s}, at::kBool).tril();
    std::vector<at::Tensor> encoded;  // of each chunk: the tokens of its neighbours, one after another
    for (int64_t layer = 0; layer < config_.gpt.num_layers; ++layer) {
      const std::string name = "layers." + std::to_string(layer) + ".";
      x = self_attention(x, name, earlier);
      if (layer == 5) encoded = encode(sample, norm(x, name + "post_attention_layernorm"));
      if (layer == 5 || layer == 8)
        x = mlp(attend_to_chunks(x, encoded, name), name, "post_inter_attention_layernorm");
      else
        x = mlp(x, name, "post_attention_layernorm");
    }
    return at::matmul(norm(x, "final_layernorm"),
                      p(config_.gpt.tie_output ? "word_embeddings.weight" : "lm_head.weight").t());
  }
  at::Tensor loss(const std::vector<SampleRow>& rows) const {
    at::Tensor sum = at::zeros({}, at::kDouble);
    for (const SampleRow& row : rows) {
      const at::Tensor labels = at::tensor(row.sample.arrays[0], at::kLong).narrow(0, 1, kChunk * kChunks);
      sum = sum - at::log_softmax(logits(row.sample), 1).gather(1, labels.unsqueeze(1)).sum();
    }
    return sum / static_cast<double>(kChunk * kChunks * static_cast<int64_t>(rows.size()));
  }
  const std::map<std::string, at::Tensor>& values() const { return values_; }

 private:
  const at::Tensor& p(const std::string& name) const { return values_.at(name); }
  bool rotates() const { return config_.gpt.position_embedding == families::PositionEmbedding::kRotary; }
  at::Tensor embedded(const at::Tensor& ids) const {
    const at::Tensor words = at::embedding(p("word_embeddings.weight"), ids);
    return rotates() ? words : words + p("position_embeddings.weight").narrow(0, 0, ids.size(0));
  }
  at::Tensor linear(const at::Tensor& x, const std::string& name) const {
    const at::Tensor product = at::matmul(x, p(name + ".weight").t());
    return config_.gpt.add_bias_linear ? product + p(name + ".bias") : product;
  }
  at::Tensor norm(const at::Tensor& x, const std::string& name) const {
    const bool rms = config_.gpt.normalization == spec::Normalization::kRmsNorm;
    const at::Tensor centred = rms ? x : x - x.mean(-1, true);
    const at::Tensor y = centred / (centred.square().mean(-1, true) + 1e-5).sqrt() * p(name + ".weight");
    return rms ? y : y + p(name + ".bias");
  }
  // [n, groups * parts * d] -> parts of [heads, n, d], each group's keys and values for all of its query heads.
  at::Tensor turned(const at::Tensor& x) const {
    if (!rotates()) return x;
    const int64_t half = x.size(2) / 2;
    const at::Tensor wave = at::pow(10000.0, -at::arange(half, at::kDouble) / static_cast<double>(half));
    const at::Tensor angle = at::outer(at::arange(x.size(1), at::kDouble), wave);
    const at::Tensor a = x.narrow(2, 0, half), b = x.narrow(2, half, half);
    return at::cat({a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()}, 2);
  }
  at::Tensor heads(const at::Tensor& x, int64_t parts, int64_t part) const {
    return x.view({x.size(0), config_.gpt.num_attention_heads, parts, config_.gpt.kv_channels})
        .select(2, part)
        .transpose(0, 1);
  }
  // `seen`: [queries, keys], or undefined: all.
  at::Tensor mixed(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                   const at::Tensor& seen = {}) const {
    at::Tensor scores = at::matmul(query, key.transpose(1, 2)) / std::sqrt(static_cast<double>(query.size(2)));
    if (seen.defined()) scores = scores.masked_fill(seen.logical_not(), -INFINITY);
    return at::matmul(at::softmax(scores, -1), value).transpose(0, 1).reshape({query.size(1), -1});
  }
  at::Tensor self_attention(const at::Tensor& x, const std::string& layer, const at::Tensor& seen) const {
    const at::Tensor in = norm(x, layer + "input_layernorm");
    const at::Tensor qkv = linear(in, layer + "self_attention.query_key_value");
    const at::Tensor result = linear(mixed(turned(heads(qkv, 3, 0)), turned(heads(qkv, 3, 1)), heads(qkv, 3, 2), seen),
                                     layer + "self_attention.dense");
    return result + (config_.gpt.residual_from_layernorm ? in : x);
  }
  // Attention of normed queries to other tokens; of none the mixture is 0.
  at::Tensor read(const at::Tensor& queries, const at::Tensor& others, const std::string& layer) const {
    const at::Tensor query = linear(queries, layer + "inter_attention.query");
    if (others.size(0) == 0) return linear(at::zeros_like(query), layer + "inter_attention.dense");
    const at::Tensor pair = linear(others, layer + "inter_attention.key_value");
    return linear(mixed(heads(query, 1, 0), heads(pair, 2, 0), heads(pair, 2, 1)), layer + "inter_attention.dense");
  }
  at::Tensor mlp(const at::Tensor& x, const std::string& layer, const std::string& norm_name) const {
    const at::Tensor in = norm(x, layer + norm_name);
    const at::Tensor inner = linear(in, layer + "mlp.dense_h_to_4h");
    const at::Tensor gelu =
        0.5 * inner * (1 + (std::sqrt(2 / M_PI) * (inner + 0.044715 * inner * inner * inner)).tanh());
    return linear(gelu, layer + "mlp.dense_4h_to_h") + (config_.gpt.residual_from_layernorm ? in : x);
  }
  std::vector<at::Tensor> encode(const data::Sample& sample, const at::Tensor& states) const {
    std::vector<at::Tensor> all;
    for (int64_t chunk = 0; chunk < kChunks; ++chunk) {
      std::vector<at::Tensor> tokens = {at::empty({0, config_.gpt.hidden_size}, at::kDouble)};
      for (int64_t neighbor = 0; neighbor < sample.arrays[2][static_cast<size_t>(chunk)]; ++neighbor) {
        const auto begin = sample.arrays[1].begin() + (chunk * kNeighbors + neighbor) * kRetrieved;
        at::Tensor x = embedded(at::tensor(std::vector<int64_t>(begin, begin + kRetrieved), at::kLong));
        for (int64_t layer = 0; layer < config_.encoder_layers; ++layer) {
          const std::string name = "layers.5.retriever.layers." + std::to_string(layer) + ".";
          x = self_attention(x, name, {});
          if (layer == 0) {
            const at::Tensor in = norm(x, name + "post_attention_layernorm");
            x = (config_.gpt.residual_from_layernorm ? in : x) +
                read(in, states.narrow(0, chunk * kChunk, kChunk), name);
          }
          x = mlp(x, name, layer == 0 ? "post_inter_attention_layernorm" : "post_attention_layernorm");
        }
        tokens.push_back(x);
      }
      all.push_back(at::cat(tokens));
    }
    return all;
  }
  // Token by token.
  at::Tensor attend_to_chunks(const at::Tensor& x, const std::vector<at::Tensor>& encoded,
                              const std::string& layer) const {
    const at::Tensor in = norm(x, layer + "post_attention_layernorm");
    std::vector<at::Tensor> rows;
    for (int64_t token = 0; token < x.size(0); ++token) {
      at::Tensor row = (config_.gpt.residual_from_layernorm ? in : x).narrow(0, token, 1);
      const int64_t chunk = (token + 1) / kChunk - 1;
      if (chunk >= 0) row = row + read(in.narrow(0, token, 1), encoded[static_cast<size_t>(chunk)], layer);
      rows.push_back(row);
    }
    return at::cat(rows);
  }

  families::RetroConfig config_;
  std::map<std::string, at::Tensor> values_;
};

struct WholeRetro {
  explicit WholeRetro(const families::RetroConfig& config)
      : params(families::retro_params(config), {}, at::kFloat, true),
        model(nn::LayerBuilder{params, dist::single_process()}, config, {.recompute = {}, .seed = 11}) {
    // Also what begins with 0 or 1, so that no gradient is left out.
    at::Generator generator = at::detail::createCPUGenerator(3);
    for (tensor::Param& param : params.params()) {
      const at::Tensor noise = at::randn(param.value.sizes(), generator, at::kFloat) * 0.2;
      param.value.copy_(param.spec->init.kind == spec::Init::Kind::kConstant ? noise + param.spec->init.value : noise);
      values[param.spec->name] = param.value;
    }
  }
  static tensor::Batch batch(const std::vector<SampleRow>& rows) { return make_retro_batch(rows, {}, kNeighbors); }
  double train(const std::vector<SampleRow>& rows) {
    const double targets = static_cast<double>(rows.size()) * kChunk * kChunks;
    const auto totals = runner
                            .train({{plan::Action::Kind::kForward, 0}, {plan::Action::Kind::kBackward, 0}},
                                   {batch(rows)}, [&](const pipeline::LossTerm&) { return 1 / targets; })
                            .totals();
    return totals.at(0).sum / totals.at(0).count;
  }

  tensor::ParamSet params;
  RetroModel model;
  std::map<std::string, at::Tensor> values;
  pipeline::Runner runner{{&model}, dist::single_process().pipeline, params.grad_queue()};
};

void expect_as_plain(const families::RetroConfig& config) {
  WholeRetro retro(config);
  const PlainRetro plain(config, retro.values);
  const tensor::Batch batch = WholeRetro::batch(retro_samples());
  const at::Tensor logits = retro.model.batch_logits(batch);
  for (int64_t row = 0; row < 2; ++row) {
    const at::Tensor wanted = plain.logits(retro_samples()[static_cast<size_t>(row)].sample);
    EXPECT_LE((logits[row].to(at::kDouble) - wanted).abs().max().item<double>(),
              1e-5 * std::max(1.0, wanted.abs().max().item<double>()))
        << "row " << row;
  }
  const at::Tensor wanted = plain.loss(retro_samples());
  EXPECT_NEAR(retro.train(retro_samples()), wanted.item<double>(), 1e-5);
  wanted.backward();
  for (tensor::Param& param : retro.params.params()) {
    const at::Tensor& gradient = plain.values().at(param.spec->name).grad();
    const double largest = gradient.abs().max().item<double>();
    EXPECT_GT(largest, 0) << param.spec->name;
    EXPECT_LE((param.grad.to(at::kDouble) - gradient).abs().max().item<double>(), 1e-5 * std::max(1.0, largest))
        << param.spec->name;
  }
}

TEST(RetroModel, LogitsLossAndEveryGradientAreThoseOfPlainFormulas) { expect_as_plain(awkward_retro()); }

TEST(RetroModel, SoAreThoseWithResidualsFromTheNormsAndOneEncoderLayer) {
  families::RetroConfig config = awkward_retro();
  config.gpt.residual_from_layernorm = true;
  config.encoder_layers = 1;
  expect_as_plain(config);
}

TEST(RetroModel, SoAreThoseWithRotaryPositionsRmsNormsAndAnOutputOfItsOwn) {
  families::RetroConfig config = awkward_retro();
  config.gpt.position_embedding = families::PositionEmbedding::kRotary;
  config.gpt.kv_channels = 8;
  config.gpt.normalization = spec::Normalization::kRmsNorm;
  config.gpt.add_bias_linear = false;
  config.gpt.tie_output = false;
  expect_as_plain(config);
}

// The neighbours of chunk u change no logit before that of the last token of the chunk, and do change that one.
TEST(RetroModel, NeighborsOfAChunkAreSeenFromItsLastTokenOn) {
  WholeRetro retro(awkward_retro());
  const SampleRow row = retro_sample(3, {2, 2, 2});
  const at::Tensor before = retro.model.batch_logits(WholeRetro::batch({row}))[0];
  for (int64_t chunk = 0; chunk < kChunks; ++chunk)
    for (int64_t neighbor = 0; neighbor < kNeighbors; ++neighbor) {
      SampleRow other = row;
      for (int64_t at = 0; at < kRetrieved; ++at) {
        int64_t& id = other.sample.arrays[1][static_cast<size_t>((chunk * kNeighbors + neighbor) * kRetrieved + at)];
        id = (id + 1) % kWords;
      }
      const at::Tensor after = retro.model.batch_logits(WholeRetro::batch({other}))[0];
      const int64_t first = (chunk + 1) * kChunk - 1;
      EXPECT_TRUE(at::equal(after.narrow(0, 0, first), before.narrow(0, 0, first))) << chunk << ", " << neighbor;
      for (int64_t token = first; token < kChunk * kChunks; ++token)
        EXPECT_FALSE(at::equal(after[token], before[token])) << chunk << ", " << neighbor << ": token " << token;
    }
}

// Nor does a token: what comes after a place changes nothing before it, also through the encoder, which reads chunks.
TEST(RetroModel, NoLogitDependsOnALaterToken) {
  WholeRetro retro(awkward_retro());
  const SampleRow row = retro_sample(3, {2, 1, 2});
  const at::Tensor before = retro.model.batch_logits(WholeRetro::batch({row}))[0];
  for (int64_t token = 0; token < kChunk * kChunks; ++token) {
    SampleRow other = row;
    int64_t& id = other.sample.arrays[0][static_cast<size_t>(token)];
    id = (id + 1) % kWords;
    const at::Tensor after = retro.model.batch_logits(WholeRetro::batch({other}))[0];
    EXPECT_TRUE(at::equal(after.narrow(0, 0, token), before.narrow(0, 0, token))) << token;
    EXPECT_FALSE(at::equal(after[token], before[token])) << token;
  }
}

// What fills the place of a neighbour that is missing is not read.
TEST(RetroModel, MissingNeighborsAreNotSeen) {
  WholeRetro retro(awkward_retro());
  const SampleRow row = retro_sample(3, {1, 2, 0});
  SampleRow other = row;
  for (int64_t& id : other.sample.arrays[1]) id = id == kEnd ? 3 : id;
  // Some tokens of neighbours that are there may be that id as well: they stay.
  for (size_t at = 0; at < row.sample.arrays[1].size(); ++at) {
    const auto chunk = static_cast<int64_t>(at) / (kNeighbors * kRetrieved);
    const auto neighbor = static_cast<int64_t>(at) / kRetrieved % kNeighbors;
    if (neighbor < row.sample.arrays[2][static_cast<size_t>(chunk)])
      other.sample.arrays[1][at] = row.sample.arrays[1][at];
  }
  EXPECT_NE(other.sample.arrays[1], row.sample.arrays[1]);
  EXPECT_TRUE(at::equal(retro.model.batch_logits(WholeRetro::batch({other})),
                        retro.model.batch_logits(WholeRetro::batch({row}))));
}

// A text that is read piece by piece, beside the pass of training over all of it: prompts that end before, at and after
// the end of a chunk, and then one token after another.
TEST(RetroModel, ReadsATextPieceByPieceAsTrainingReadsItAtOnce) {
  for (const bool rotary : {false, true})
    for (const int64_t prompt : {int64_t{1}, kChunk - 1, kChunk, kChunk + 1, kChunk * kChunks - 1}) {
      SCOPED_TRACE(concat("rotary ", rotary, ", a prompt of ", prompt));
      families::RetroConfig config = awkward_retro();
      config.gpt.residual_from_layernorm = rotary;
      if (rotary) {
        config.gpt.position_embedding = families::PositionEmbedding::kRotary;
        config.gpt.kv_channels = 8;
      }
      const WholeRetro retro(config);
      const SampleRow row = retro_sample(3, {2, 1, 0});
      const at::Tensor wanted = retro.model.batch_logits(WholeRetro::batch({row}))[0];
      std::vector<ChunkNeighbors> neighbors;
      const std::vector<int64_t>& tokens = row.sample.arrays[1];
      for (int64_t chunk = 0; chunk < kChunks; ++chunk) {
        const auto begin = tokens.begin() + chunk * kNeighbors * kRetrieved;
        neighbors.push_back(
            {{begin, begin + kNeighbors * kRetrieved}, row.sample.arrays[2][static_cast<size_t>(chunk)], {}});
      }
      const at::NoGradGuard no_grad;
      const at::Tensor ids = at::tensor(row.sample.arrays[0], at::kLong).unsqueeze(0);
      ReadText text{new_cache(retro.model.decoder_shape(), at::kFloat, 1, kChunk * kChunks), {}, {}, {}};
      std::vector<at::Tensor> logits;
      for (int64_t first = 0; first < kChunk * kChunks;) {
        const int64_t end = std::max(prompt, first + 1);
        logits.push_back(retro.model
                             .logits(retro.model.read_on(
                                 ids.narrow(1, first, end - first),
                                 {neighbors.begin() + first / kChunk, neighbors.begin() + end / kChunk}, text))
                             .squeeze(1));
        first = end;
      }
      const double largest = (at::cat(logits) - wanted).abs().max().item<double>();
      EXPECT_LE(largest, 1e-5 * std::max(1.0, wanted.abs().max().item<double>()));
    }
}

// The stream of a layer that retrieves then goes on as it is; generation does the same.
TEST(RetroModel, WithoutNeighborsItIsAGptOfItsWeights) {
  const families::RetroConfig config = awkward_retro();
  WholeRetro retro(config);
  tensor::ParamSet params(families::gpt_params(config.gpt), {}, at::kFloat, true);
  for (tensor::Param& param : params.params()) {
    std::string name = param.spec->name;
    for (const std::string layer : {"layers.5.", "layers.8."})
      if (name.starts_with(layer + "post_attention_layernorm"))
        name = layer + "post_inter_attention_layernorm" + name.substr(name.rfind('.'));
    param.value.copy_(retro.values.at(name));
  }
  const GptModel gpt(nn::LayerBuilder{params, dist::single_process()}, config.gpt, {});
  const at::Tensor ids = at::arange(kChunk * kChunks, at::kLong).view({1, -1}), positions = ids;
  const auto logits_of = [&](const Decoder& model) {
    return model.logits(model.hidden_states(ids, positions, {.attention = model.attention_context()}));
  };
  EXPECT_TRUE(at::equal(logits_of(retro.model), logits_of(gpt)));
}

// Every tensor that an op keeps for its backward, in order, with its bytes: what plans of memory are made from.
TEST(RetroModel, OpsKeepWhatThePlanLists) {
  for (const int64_t encoder_layers : {1, 3})
    for (const bool rotary : {false, true}) {
      families::RetroConfig config = awkward_retro();
      config.encoder_layers = encoder_layers;
      config.gpt.hidden_dropout = config.encoder_hidden_dropout = 0.1;
      if (rotary) {
        config.gpt.position_embedding = families::PositionEmbedding::kRotary;
        config.gpt.kv_channels = 8;
      }
      const std::string where = concat(encoder_layers, " layers of the encoder, rotary: ", rotary, ", ");
      const plan::RunShape shape{.model = families::retro_model_spec(config, kChunk * kChunks, {}),
                                 .grid = {},
                                 .recompute = {},
                                 .sequence_length = kChunk * kChunks,
                                 .micro_batch_size = 2,
                                 .global_batch_size = 2,
                                 .rampup_batch_size = {}};
      const std::vector<plan::SavedBytes> expected =
          plan::part_activations(shape, plan::make_partition(shape), 0, 0, plan::ProductKind::kDirect).saved;
      std::vector<plan::SavedBytes> kept;
      std::set<const void*> seen;
      {
        const tensor::ObserveSaved observe([&](const char* op, const tensor::SavedTensor& saved) {
          const bool again = saved.tensor.numel() > 0 && !seen.insert(saved.tensor.const_data_ptr()).second;
          kept.push_back({op, saved.name, static_cast<double>(saved.tensor.nbytes()), again});
        });
        WholeRetro(config).train(retro_samples());
      }
      EXPECT_EQ(kept.size(), expected.size()) << where;
      for (size_t at = 0; at < std::min(kept.size(), expected.size()); ++at) {
        const std::string tensor = concat(where, "tensor ", at, ", ", kept[at].op, ".", kept[at].name);
        ASSERT_EQ(kept[at].op + "." + kept[at].name, expected[at].op + "." + expected[at].name) << tensor;
        EXPECT_EQ(kept[at].bytes, expected[at].bytes) << tensor;
        EXPECT_EQ(kept[at].again, expected[at].again) << tensor;
      }
    }
}

TEST(RetroModel, VisitsExactlyTheParametersOfItsSpecListInOrder) {
  for (const bool tie_output : {false, true}) {
    families::RetroConfig config = awkward_retro();
    config.gpt.tie_output = tie_output;
    WholeRetro retro(config);
    std::vector<std::string> names, expected;
    tensor::ParamVisitor visitor([&](const std::string& name, tensor::Param& param) {
      EXPECT_EQ(name, param.spec->name);
      names.push_back(name);
    });
    retro.model.visit(visitor);
    for (const spec::ParamSpec& spec : families::retro_params(config)) expected.push_back(spec.name);
    EXPECT_EQ(names, expected);
  }
}

}  // namespace retro_model_test
}  // namespace espalier::models
