// A BERT as data: parameters, and what each depth costs.
#include "base/format.h"
#include "config/unused_options.h"
#include "data/sentence_dataset.h"
#include "families/bert/internal/bert.h"

namespace espalier::families {
namespace {

constexpr double kBertInt64 = 8, kBertFp32 = 4, kBertInt32 = 4;

}  // namespace

spec::GhostProgram internal::bert_embedding_ghost(const BertConfig& model) {
  const bool has_types = model.num_tokentypes > 0;
  return [has_types](spec::GhostOps& ops, const spec::Ghost&) {
    spec::Ghost x = ops.add_positions(ops.look_up_words());
    if (has_types) x = ops.add_positions(std::move(x));  // a table of rows by number, as that of the positions
    return ops.dropout(std::move(x));
  };
}

namespace {

// Of the pooler and its head only the way back to the whole sequence counts: they work on one token of a sample.
spec::GhostProgram bert_heads_ghost(const BertConfig& model) {
  const bool pools = model.binary_head;
  return [pools](spec::GhostOps& ops, const spec::Ghost& x) {
    spec::Ghost hidden = ops.norm(x, spec::Normalization::kLayerNorm, false);
    if (pools) hidden = ops.also_first_token(std::move(hidden));
    hidden = ops.dense_activation(std::move(hidden));
    ops.language_model_loss(ops.norm(std::exchange(hidden, nullptr), spec::Normalization::kLayerNorm, false));
    return spec::Ghost();
  };
}

std::vector<spec::Depth> bert_depths(const BertConfig& model, int64_t sequence_length) {
  const double s = static_cast<double>(sequence_length), h = static_cast<double>(model.hidden_size);
  const double vocabulary = static_cast<double>(model.padded_vocab_size);
  std::vector<spec::Depth> depths = internal::bert_encoder_depths(model, {.tokens = s, .pairs = s * s});
  const double pooled = model.binary_head ? h * h + 2 * h : 0;
  depths.back() = {.name = depths.back().name,
                   .forward_flops = 2 * s * h * (h + vocabulary) + 2 * pooled,
                   .megatron_flops = 1.5 * s * h * vocabulary,
                   .summed_backward = s * h,
                   .ghost = bert_heads_ghost(model)};
  return depths;
}

config::FamilyConfig new_bert() { return config::FamilyConfig(BertSettings{}); }
int64_t bert_layers(const config::FamilyConfig& config) { return config.as<BertSettings>().shape.num_layers; }

spec::ModelSpec bert_model(const config::RunConfig& run) {
  return bert_model_spec(bert_config(run), run.data.sequence_length);
}

void check_bert_data(const config::RunConfig& run, const text::Tokenizer* tokenizer, const data::DataPlan& plan,
                     Problems& problems) {
  if (tokenizer != nullptr) data::SentenceVocabulary::make(*tokenizer, data::SentenceModel::kBert, problems);
  if (run.data.sequence_length > 0) data::check_sentences(plan, bert_samples(run), problems);
}

}  // namespace

TransformerShape BertConfig::layers() const {
  return {.prefix = tower.prefix,
          .first_layer = tower.layers_before,
          .num_layers = num_layers,
          .hidden_size = hidden_size,
          .ffn_hidden_size = ffn_hidden_size,
          .num_attention_heads = num_attention_heads,
          .num_groups = num_attention_heads,
          .kv_channels = kv_channels,
          .layernorm_epsilon = layernorm_epsilon,
          .activation = activation,
          .residual_from_layernorm = residual_from_layernorm,
          .init_method_std = init_method_std};
}

void internal::add_bert_encoder_params(ParamList& params, const BertConfig& config, bool predicts_words) {
  using spec::Init;
  using spec::Placement;
  const int64_t hidden = config.hidden_size;
  const Init normal = Init::normal(config.init_method_std);
  const std::string& prefix = config.tower.prefix;
  params.set_depth(0);
  spec::ParamSpec& words = params.add(prefix + "word_embeddings.weight", {config.padded_vocab_size, hidden},
                                      Placement::split(0, {config.padded_vocab_size}), normal, true);
  if (predicts_words) words.other_depths = {config.last_depth()};
  params.add(prefix + "position_embeddings.weight", {config.max_position_embeddings, hidden}, Placement::replicated(),
             normal, true);
  if (config.num_tokentypes > 0)
    params.add(prefix + "tokentype_embeddings.weight", {config.num_tokentypes, hidden}, Placement::replicated(), normal,
               true);
  const TransformerShape layers = config.layers();
  for (int64_t layer = 0; layer < config.num_layers; ++layer) params.add_layer(layers, layer);
  params.set_depth(config.last_depth());
  params.add_norm(prefix + "final_layernorm", hidden, spec::Normalization::kLayerNorm);
}

// Every position sees every other; padding is not known before the samples are.
std::vector<spec::Depth> internal::bert_encoder_depths(const BertConfig& model, const LayerTokens& sizes) {
  const double stream = sizes.tokens * static_cast<double>(model.hidden_size);
  std::vector<spec::Depth> depths(static_cast<size_t>(model.num_layers + 2), layer_depth(model.layers(), sizes));
  for (size_t number = 0; number < depths.size(); ++number)
    depths[number].name = spec::stack_depth_name(static_cast<int64_t>(number), model.num_layers);
  depths.front() = {
      .name = depths.front().name, .passed_on = stream, .summed_forward = stream, .ghost = bert_embedding_ghost(model)};
  return depths;
}

std::vector<spec::ParamSpec> bert_params(const BertConfig& config) {
  using spec::Init;
  ParamList params;
  const int64_t hidden = config.hidden_size;
  const Init normal = Init::normal(config.init_method_std);
  internal::add_bert_encoder_params(params, config, true);
  params.add_dense("lm_head.dense", hidden, hidden, normal);
  params.add_norm("lm_head.layernorm", hidden, spec::Normalization::kLayerNorm);
  params.add("lm_head.bias", {config.padded_vocab_size}, spec::Placement::split(0, {config.padded_vocab_size}),
             Init::constant(0), false);
  if (config.binary_head) {
    params.add_dense("pooler.dense", hidden, hidden, normal);
    params.add_dense("binary_head", 2, hidden, normal);
  }
  return params.take();
}

spec::ModelSpec bert_model_spec(const BertConfig& model, int64_t sequence_length) {
  const double s = static_cast<double>(sequence_length);
  return {.family = "bert",
          .description = concat(model.num_layers, " layers, ", model.hidden_size, " wide, ", model.num_attention_heads,
                                " heads", model.binary_head ? "" : ", no binary head"),
          .params = bert_params(model),
          .depths = bert_depths(model, sequence_length),
          .vocabulary = {.size = model.vocab_size, .padded_size = model.padded_vocab_size},
          .hidden_size = model.hidden_size,
          .has_dropout = model.hidden_dropout > 0,
          .batch_bytes = (4 * kBertInt64 + kBertFp32 + kBertInt32) * s + kBertInt64};
}

BertConfig bert_config(const config::FamilyConfig& settings, const spec::Vocabulary& vocabulary) {
  BertConfig model = settings.as<BertSettings>().shape;
  model.vocab_size = vocabulary.size;
  model.padded_vocab_size = vocabulary.padded_size;
  return model;
}

BertConfig bert_config(const config::RunConfig& run) { return bert_config(run.model, run.vocabulary); }

BertSettings bert_settings(const BertConfig& model) {
  BertSettings settings;
  settings.shape = model;
  settings.openai_gelu = model.head_activation == spec::Activation::kGeluTanh;
  settings.gelu_is_fused = model.activation == spec::Activation::kGeluTanh;
  if (model.num_tokentypes != (model.binary_head ? 2 : 0)) settings.num_tokentypes = model.num_tokentypes;
  return settings;
}

data::SentenceSampleOptions bert_samples(const config::RunConfig& run) {
  const BertSettings& settings = run.model.as<BertSettings>();
  data::SentenceSampleOptions samples;
  samples.model = data::SentenceModel::kBert;
  samples.sequence_length = run.data.sequence_length;
  samples.mask_probability = settings.mask_probability;
  samples.short_probability = settings.short_probability;
  samples.binary_head = settings.shape.binary_head;
  return samples;
}

const config::Family& bert_family() {
  static const config::Family family{
      .name = "bert",
      .display = "BERT",
      .kin = "Megatron's BERT: masked words and the order of sentences",
      .summary = "Trains a BERT on token files of `espalier preprocess --split-sentences`.",
      .tokenizer_type = "BertWordPieceLowerCase",
      .new_config = new_bert,
      .add_options = internal::add_bert_options,
      .resolve = internal::resolve_bert,
      .find_unused = internal::find_unused_bert,
      .num_layers = bert_layers,
      .model = bert_model,
      .check_data = check_bert_data};
  return family;
}

}  // namespace espalier::families
