// megatron-bert and bert: Megatron's BERT with residual branches from before and from after its norms.
//
// What --apply-residual-connection-post-layernorm makes is Devlin et al.'s order in other words. There a norm
// follows the embeddings and each sum; here the first norm of a layer takes what the layer before gives, and what it
// makes goes into the residual sum too. So the norm after the embeddings is the first layer's input_layernorm, the one
// after a layer's last sum the next layer's, and the last of all the final_layernorm.
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "convert/bert/internal/bert_codecs.h"
#include "convert/hf/internal/activation_names.h"
#include "convert/hf/internal/config_reader.h"
#include "convert/hf/internal/map_builder.h"
#include "families/bert/config.h"

namespace espalier::convert {
namespace {

using families::BertConfig;
using spec::Activation;

// Of rows that their vocabulary does not have, [BOS], [EOS] and padding: next to any other logit their probability is 0
// in every type, so that what is predicted is what transformers predicts.
constexpr float kBiasOfNoPiece = -10'000;

enum class BertKind { kMegatron, kPostNorm };

const char* class_prefix(BertKind kind) { return kind == BertKind::kMegatron ? "MegatronBert" : "Bert"; }

BertConfig bert_of(const ModelConfig& model) { return families::bert_config(model.settings, model.vocabulary); }

bool stores_any(const HfTensors& stored, const std::string& prefix) {
  const auto next = stored.names->lower_bound(prefix);
  return next != stored.names->end() && next->starts_with(prefix);
}

// The weights decide, as published folders hold more than their class names; without them the class does.
bool read_binary_head(BertKind kind, ConfigReader& reader, const HfTensors& stored, HfModel& model) {
  const std::string both = concat(class_prefix(kind), "ForPreTraining"),
                    words = concat(class_prefix(kind), "ForMaskedLM");
  check_architectures(reader, {both, words});
  const std::vector<std::string> classes = reader.texts("architectures");
  const bool is_said = std::find(classes.begin(), classes.end(), both) != classes.end();
  if (stored.names == nullptr) return is_said;
  if (!stores_any(stored, "cls.predictions."))
    reader.problem("architectures", "the weights have no masked-LM head (cls.predictions.*), which a BERT has here");
  const bool has_head = is_said || stores_any(stored, "cls.seq_relationship.");
  if (!has_head && stores_any(stored, "bert.pooler."))
    model.notes.push_back("bert.pooler is left out: without cls.seq_relationship nothing here uses it");
  return has_head;
}

Activation read_gelu(ConfigReader& reader) {
  const Activation activation = read_activation(reader, "hidden_act", "gelu", /*gated=*/false);
  if (activation != Activation::kGeluTanh && activation != Activation::kGeluErf)
    reader.problem("hidden_act", reader.text("hidden_act", ""),
                   " is not supported: the activation of a BERT is gelu here");
  return activation;
}

void refuse_other_berts(ConfigReader& reader) {
  reader.require("position_embedding_type", "absolute", "a BERT learns its positions here");
  reader.require("is_decoder", false, "every token of a BERT sees all others here");
  reader.require("add_cross_attention", false, "a BERT attends to nothing but its own tokens");
  reader.require("is_encoder_decoder", false, "a BERT is only an encoder");
  reader.require("tie_word_embeddings", true, "the masked-LM head of a BERT uses the word embeddings here");
  reader.ignore({"classifier_dropout", "directionality", "pooler_fc_size", "pooler_num_attention_heads",
                 "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type"});
}

void read_bert(BertKind kind, ConfigReader& reader, const HfTensors& stored, HfModel& model) {
  BertConfig config;
  config.num_layers = reader.required_size({"num_hidden_layers"}, kMostLayers);
  config.hidden_size = reader.required_size({"hidden_size"}, kMostHidden);
  config.num_attention_heads = reader.required_size({"num_attention_heads"}, kMostHeads);
  config.ffn_hidden_size = reader.required_size({"intermediate_size"}, kMostFfn);
  config.max_position_embeddings = reader.size({"max_position_embeddings"}).value_or(512);
  config.num_tokentypes = reader.size({"type_vocab_size"}, 1'000'000).value_or(2);
  config.activation = config.head_activation = read_gelu(reader);
  config.residual_from_layernorm = kind == BertKind::kPostNorm;
  config.layernorm_epsilon = reader.number("layer_norm_eps", 1e-12, 0, 1);
  config.init_method_std = reader.number("initializer_range", 0.02, 0, 1e6);
  config.hidden_dropout = reader.number("hidden_dropout_prob", 0.1, 0, 1);
  config.attention_dropout = reader.number("attention_probs_dropout_prob", 0.1, 0, 1);
  config.binary_head = read_binary_head(kind, reader, stored, model);
  refuse_other_berts(reader);
  const int64_t hidden = config.hidden_size, heads = config.num_attention_heads;
  if (hidden > 0 && heads > 0) {
    if (hidden % heads != 0) reader.problem("num_attention_heads", heads, " does not divide hidden_size ", hidden);
    config.kv_channels = hidden / heads;
  }
  if (config.binary_head && config.num_tokentypes < 2)
    reader.problem("type_vocab_size", config.num_tokentypes, ": the two halves of a sample need 2 token types");
  if (kind == BertKind::kPostNorm && config.hidden_dropout > 0)
    model.notes.push_back(
        "hidden_dropout_prob: the embeddings are dropped out before their norm here, in transformers after it; without "
        "dropout both compute the same");
  model.config.settings = config::FamilyConfig(families::bert_settings(config));
  model.config.settings.as<families::BertSettings>().num_tokentypes = config.num_tokentypes;
  model.config.longest_sequence = config.max_position_embeddings;
}

std::vector<std::string> obstacles_of_bert(BertKind kind, const ModelConfig& model) {
  const BertConfig config = bert_of(model);
  std::vector<std::string> reasons;
  if (config.activation != config.head_activation)
    reasons.push_back(
        "layers and masked-LM head have one form of gelu (hidden_act), and here the layers have its tanh form and the "
        "head the exact one. `export-hf ... -- --openai-gelu` writes the tanh form for both, `-- "
        "--no-bias-gelu-fusion` the exact one: this slightly changes what the model computes");
  if (config.residual_from_layernorm != (kind == BertKind::kPostNorm))
    reasons.push_back(kind == BertKind::kPostNorm ? "residual branches start after the norms"
                                                  : "residual branches start before the norms");
  if (config.num_attention_heads * config.kv_channels != config.hidden_size)
    reasons.push_back("heads * head size is the hidden size");
  return reasons;
}

std::string architecture_of_bert(BertKind kind, const ModelConfig& model) {
  return concat(class_prefix(kind), bert_of(model).binary_head ? "ForPreTraining" : "ForMaskedLM");
}

void write_bert(const ModelConfig& model, nlohmann::ordered_json& json) {
  const BertConfig config = bert_of(model);
  json["num_hidden_layers"] = config.num_layers;
  json["hidden_size"] = config.hidden_size;
  json["num_attention_heads"] = config.num_attention_heads;
  json["intermediate_size"] = config.ffn_hidden_size;
  json["max_position_embeddings"] = config.max_position_embeddings;
  // Without a table here: one of a single row of zeros, which adds nothing.
  json["type_vocab_size"] = std::max<int64_t>(config.num_tokentypes, 1);
  json["hidden_act"] = *name_of(config.activation);
  json["layer_norm_eps"] = config.layernorm_epsilon;
  json["initializer_range"] = config.init_method_std;
  json["hidden_dropout_prob"] = config.hidden_dropout;
  json["attention_probs_dropout_prob"] = config.attention_dropout;
  json["position_embedding_type"] = "absolute";
  json["is_decoder"] = false;
  json["tie_word_embeddings"] = true;
}

class BertMap {
 public:
  BertMap(BertKind kind, const ModelConfig& model, const HfTensors& theirs)
      : kind_(kind), config_(bert_of(model)), theirs_(theirs), builder_(model, theirs) {}

  TensorMap build() {
    add_embeddings();
    for (int64_t layer = 0; layer < config_.num_layers; ++layer) add_layer(layer);
    builder_.set_prefix("");
    if (kind_ == BertKind::kMegatron) add_norm("final_layernorm", "bert.encoder.ln");
    add_heads();
    return builder_.take();
  }

 private:
  // The first releases wrote gamma and beta.
  void add_norm(const std::string& name, const std::string& theirs) {
    if (!theirs_.has(theirs + ".gamma")) return builder_.same_module(name, theirs);
    builder_.same(name + ".weight", theirs + ".gamma");
    builder_.same(name + ".bias", theirs + ".beta");
  }

  void add_embeddings() {
    const std::string embeddings = "bert.embeddings.";
    builder_.add_vocabulary("word_embeddings.weight", embeddings + "word_embeddings.weight");
    builder_.same("position_embeddings.weight", embeddings + "position_embeddings.weight");
    const std::string types = embeddings + "token_type_embeddings.weight";
    if (config_.num_tokentypes > 0) return builder_.same("tokentype_embeddings.weight", types);
    TensorMap& map = builder_.map();
    map.their_padding.push_back({map.theirs.add(types, {1, config_.hidden_size}), 0, config_.hidden_size});
  }

  void add_layer(int64_t layer) {
    const std::string before = concat("bert.encoder.layer.", layer - 1, "."),
                      own = concat("bert.encoder.layer.", layer, ".");
    builder_.set_prefix(config_.layers().layer_name(layer) + ".");
    const HeadShape heads{config_.num_attention_heads, config_.num_attention_heads, config_.kv_channels};
    for (const std::string part : {".weight", ".bias"}) {
      const std::string self = own + "attention.self.";
      builder_.add_qkv("self_attention.query_key_value" + part, heads,
                       {self + "query" + part, self + "key" + part, self + "value" + part});
    }
    builder_.same_module("self_attention.dense", own + "attention.output.dense");
    builder_.same_module("mlp.dense_h_to_4h", own + "intermediate.dense");
    builder_.same_module("mlp.dense_4h_to_h", own + "output.dense");
    if (kind_ == BertKind::kMegatron) {
      add_norm("input_layernorm", own + "attention.ln");
      add_norm("post_attention_layernorm", own + "ln");
      return;
    }
    add_norm("input_layernorm", layer == 0 ? "bert.embeddings.LayerNorm" : before + "output.LayerNorm");
    add_norm("post_attention_layernorm", own + "attention.output.LayerNorm");
    if (layer + 1 < config_.num_layers) return;
    builder_.set_prefix("");
    add_norm("final_layernorm", own + "output.LayerNorm");
  }

  // The output layer of the masked-LM head has the word embedding for its weight and the head's bias for its own: some
  // folders store either or both once more.
  void add_heads() {
    const std::string head = "cls.predictions.", bias = head + "bias", copy = head + "decoder.bias",
                      weight = head + "decoder.weight";
    builder_.same_module("lm_head.dense", head + "transform.dense");
    add_norm("lm_head.layernorm", head + "transform.LayerNorm");
    const bool has_only_copy = theirs_.has(copy) && !theirs_.has(bias);
    builder_.add_vocabulary("lm_head.bias", has_only_copy ? copy : bias, kBiasOfNoPiece);
    if (theirs_.has(copy) && !has_only_copy) builder_.copy_vocabulary("lm_head.bias", copy);
    if (theirs_.has(weight)) builder_.copy_vocabulary("word_embeddings.weight", weight);
    if (!config_.binary_head) return;
    builder_.same_module("pooler.dense", "bert.pooler.dense");
    builder_.same_module("binary_head", "cls.seq_relationship");
  }

  BertKind kind_;
  BertConfig config_;
  const HfTensors& theirs_;
  HfMapBuilder builder_;
};

HfCodec codec_of_kind(BertKind kind, const char* model_type) {
  return {
      .model_type = model_type,
      .family = &families::bert_family(),
      .read = [kind](ConfigReader& reader, const HfTensors& stored,
                     HfModel& model) { read_bert(kind, reader, stored, model); },
      .obstacles = [kind](const ModelConfig& model) { return obstacles_of_bert(kind, model); },
      .architecture = [kind](const ModelConfig& model) { return architecture_of_bert(kind, model); },
      .write = write_bert,
      .map = [kind](const ModelConfig& model, const HfTensors& theirs) { return BertMap(kind, model, theirs).build(); },
      .leaves_out =
          [](const std::string& name, const ModelConfig& model) {
            return name == "bert.embeddings.position_ids" || name == "bert.embeddings.token_type_ids" ||
                   (!bert_of(model).binary_head && name.starts_with("bert.pooler."));
          },
      .run_tokenizer = wordpiece_of_folder,
      .complete_tokenizer = complete_bert_tokenizer,
      .generates = false};
}

}  // namespace

HfCodec megatron_bert_codec() { return codec_of_kind(BertKind::kMegatron, "megatron-bert"); }
HfCodec bert_codec() { return codec_of_kind(BertKind::kPostNorm, "bert"); }

}  // namespace espalier::convert
