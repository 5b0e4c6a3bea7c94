#include "convert/hf/config.h"

#include <algorithm>
#include <limits>

#include "base/format.h"
#include "convert/hf/internal/activation_names.h"
#include "convert/hf/internal/config_reader.h"
#include "convert/hf/internal/rope.h"

namespace espalier::convert {
namespace {

using Json = ConfigReader::Json;
using families::GptConfig;

// As large as our options allow; products of them fit in 64 bits.
constexpr int64_t kMostLayers = 10'000, kMostHidden = 1'000'000, kMostFfn = 10'000'000, kMostHeads = 100'000;
constexpr int64_t kMostRows = 1'000'000'000;
constexpr int kDeepest = 16;  // what is nested without end would overrun the stack where it is shown

constexpr int64_t kBloomPositions = 2048;  // of the published models; config.json has no key for it

// What transformers assumes where a key is absent.
struct FamilyDefaults {
  int64_t max_positions = 0;
  double epsilon = 1e-6;
  int64_t groups = 0;  // 0: as many as heads
  int64_t head_size = 0;
  int64_t window = 0;
};
FamilyDefaults defaults_of(HfFamily family) {
  switch (family) {
    case HfFamily::kLlama: return {.max_positions = 2048};
    case HfFamily::kMistral: return {.max_positions = 131072, .groups = 8, .window = 4096};
    case HfFamily::kQwen2: return {.max_positions = 32768, .groups = 32, .window = 4096};
    case HfFamily::kQwen3: return {.max_positions = 32768, .groups = 32, .head_size = 128, .window = 4096};
    case HfFamily::kPhi3: return {.max_positions = 4096, .epsilon = 1e-5};
    default: return {};
  }
}

void read_heads(ConfigReader& reader, GptConfig& config) {
  const int64_t hidden = config.hidden_size, heads = config.num_attention_heads;
  if (config.kv_channels == 0 && hidden > 0 && heads > 0) {
    if (hidden % heads != 0)
      reader.problem("num_attention_heads", heads, " does not divide hidden_size ", hidden,
                     ", and head_dim is not given");
    config.kv_channels = hidden / heads;
  }
  if (config.num_query_groups == 0) config.num_query_groups = heads;
  const int64_t groups = config.num_query_groups;
  if (groups > 0 && heads % groups != 0)
    reader.problem("num_key_value_heads", groups, " does not divide num_attention_heads ", heads);
}

void read_gpt2(ConfigReader& reader, HfModel& model) {
  GptConfig& config = model.config;
  config.num_layers = reader.required_size({"n_layer", "num_hidden_layers"}, kMostLayers);
  config.hidden_size = reader.required_size({"n_embd", "hidden_size"}, kMostHidden);
  config.num_attention_heads = reader.required_size({"n_head", "num_attention_heads"}, kMostHeads);
  config.max_position_embeddings = reader.size({"n_positions", "max_position_embeddings"}).value_or(1024);
  config.ffn_hidden_size = reader.size({"n_inner"}, kMostFfn).value_or(4 * config.hidden_size);
  config.layernorm_epsilon = reader.number("layer_norm_epsilon", 1e-5, 0, 1);
  config.activation = read_activation(reader, "activation_function", "gelu_new", /*gated=*/false);
  config.hidden_dropout = reader.number("resid_pdrop", 0.1, 0, 1);
  config.attention_dropout = reader.number("attn_pdrop", 0.1, 0, 1);
  const double embedding_dropout = reader.number("embd_pdrop", config.hidden_dropout, 0, 1);
  if (embedding_dropout != config.hidden_dropout)
    model.notes.push_back(concat("embd_pdrop ", format_shortest(embedding_dropout),
                                 ": the embedding's dropout is here resid_pdrop, ",
                                 format_shortest(config.hidden_dropout)));
  reader.require("scale_attn_weights", true, "attention scores are always divided by the root of the head size here");
  reader.require("scale_attn_by_inverse_layer_idx", false, "attention scores do not depend on the layer's number here");
  reader.ignore({"reorder_and_upcast_attn", "n_ctx", "summary_type", "summary_use_proj", "summary_activation",
                 "summary_proj_to_labels", "summary_first_dropout"});
}

void read_bloom(ConfigReader& reader, HfModel& model) {
  GptConfig& config = model.config;
  config.num_layers = reader.required_size({"n_layer", "num_hidden_layers"}, kMostLayers);
  config.hidden_size = reader.required_size({"n_embed", "hidden_size"}, kMostHidden);
  config.num_attention_heads = reader.required_size({"n_head", "num_attention_heads"}, kMostHeads);
  config.ffn_hidden_size = 4 * config.hidden_size;
  config.max_position_embeddings = reader.size({"seq_length"}).value_or(kBloomPositions);
  config.position_embedding = families::PositionEmbedding::kAlibi;
  config.embed_layernorm = true;
  config.layernorm_epsilon = reader.number("layer_norm_epsilon", 1e-5, 0, 1);
  if (config.layernorm_epsilon != 1e-5)
    reader.problem("layer_norm_epsilon", format_shortest(config.layernorm_epsilon),
                   " is not supported: the norm after the embedding has 1e-05 here, as in Megatron");
  config.activation = spec::Activation::kGeluTanh;
  config.residual_from_layernorm = reader.flag("apply_residual_connection_post_layernorm", false);
  config.hidden_dropout = reader.number("hidden_dropout", 0, 0, 1);
  config.attention_dropout = reader.number("attention_dropout", 0, 0, 1);
  reader.ignore({"slow_but_exact", "pretraining_tp", "n_inner", "offset_alibi", "skip_bias_add", "skip_bias_add_qkv",
                 "bias_dropout_fusion", "masked_softmax_fusion", "attention_softmax_in_fp32", "unk_token_id"});
}

// Biases: all linear layers, query, key and value alone, or none.
void read_biases(ConfigReader& reader, HfFamily family, GptConfig& config) {
  config.add_bias_linear = false;
  if (family == HfFamily::kQwen2) config.add_qkv_bias = true;
  reader.require("lm_head_bias", false, "the output layer has no bias here");
  if (family != HfFamily::kLlama) {
    reader.require("attention_bias", false, "a bias of o_proj comes only together with those of the MLP here");
    reader.require("mlp_bias", false, "biases of the MLP come only together with those of attention here");
    return;
  }
  const bool attention = reader.flag("attention_bias", false), mlp = reader.flag("mlp_bias", false);
  if (attention != mlp)
    reader.problem(attention ? "attention_bias" : "mlp_bias",
                   "true is only supported together with the other of attention_bias and mlp_bias");
  config.add_bias_linear = attention && mlp;
}

// The one window of all layers, 0 for none.
int64_t window_of_layers(ConfigReader& reader, const GptConfig& config, int64_t otherwise) {
  const int64_t window = reader.size({"sliding_window"}).value_or(reader.is_null("sliding_window") ? 0 : otherwise);
  const bool uses = reader.flag("use_sliding_window", false) && window > 0;
  const auto first = static_cast<int64_t>(reader.number("max_window_layers", 28, 0, 1e9));
  std::vector<std::string> types = reader.texts("layer_types");
  if (types.empty() && uses) {
    if (first == 0) return window;
    if (first >= config.num_layers) return 0;
    reader.problem("max_window_layers", first, " of ", config.num_layers,
                   " layers would see all; here all layers have one window");
    return 0;
  }
  const bool all_full = std::count(types.begin(), types.end(), "full_attention") == static_cast<int64_t>(types.size());
  const bool all_sliding =
      std::count(types.begin(), types.end(), "sliding_attention") == static_cast<int64_t>(types.size());
  if (!all_full && !(all_sliding && uses))
    reader.problem(
        "layer_types",
        "only the same for all layers is supported: full_attention, or sliding_attention with use_sliding_window");
  return all_full ? 0 : window;
}

void read_window(ConfigReader& reader, HfFamily family, GptConfig& config) {
  const int64_t otherwise = defaults_of(family).window;
  if (family == HfFamily::kQwen2 || family == HfFamily::kQwen3)
    config.window_size = window_of_layers(reader, config, otherwise);
  else if (family == HfFamily::kMistral || family == HfFamily::kPhi3)
    config.window_size = reader.size({"sliding_window"}).value_or(reader.is_null("sliding_window") ? 0 : otherwise);
}

void read_llama_like(ConfigReader& reader, HfModel& model, Problems& problems) {
  GptConfig& config = model.config;
  const HfFamily family = model.family;
  const FamilyDefaults defaults = defaults_of(family);
  config.num_layers = reader.required_size({"num_hidden_layers"}, kMostLayers);
  config.hidden_size = reader.required_size({"hidden_size"}, kMostHidden);
  config.ffn_hidden_size = reader.required_size({"intermediate_size"}, kMostFfn);
  config.num_attention_heads = reader.required_size({"num_attention_heads"}, kMostHeads);
  const int64_t groups =
      reader.is_null("num_key_value_heads") || defaults.groups == 0 ? config.num_attention_heads : defaults.groups;
  config.num_query_groups = reader.size({"num_key_value_heads"}, kMostHeads).value_or(groups);
  config.kv_channels =
      reader.size({"head_dim"}, kMostHeads).value_or(reader.is_null("head_dim") ? 0 : defaults.head_size);
  config.max_position_embeddings = reader.size({"max_position_embeddings"}).value_or(defaults.max_positions);
  config.normalization = spec::Normalization::kRmsNorm;
  config.layernorm_epsilon = reader.number("rms_norm_eps", defaults.epsilon, 0, 1);
  config.activation = read_activation(reader, "hidden_act", "silu", /*gated=*/true);
  config.attention_dropout = reader.number("attention_dropout", 0, 0, 1);
  config.hidden_dropout = family == HfFamily::kPhi3 ? reader.number("resid_pdrop", 0, 0, 1) : 0;
  config.qk_layernorm = family == HfFamily::kQwen3;
  read_biases(reader, family, config);
  read_window(reader, family, config);
  read_heads(reader, config);
  read_rope(reader, family, config, problems);
  reader.require("use_mrope", false, "positions have one dimension here");
  reader.require("rope_interleaved", false, "rotated pairs are (i, i + half) in these families");
  // The last two are Phi-4-mini's, and no code reads them.
  reader.ignore({"pretraining_tp", "embd_pdrop", "is_llama_config", "full_attn_mod", "interpolate_factor"});
}

// Keys of other families, or of all, that would change the model.
void refuse_what_changes_the_model(ConfigReader& reader) {
  for (const char* key :
       {"quantization_config", "num_experts", "num_local_experts", "attn_logit_softcapping", "final_logit_softcapping",
        "embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling", "clip_qkv"})
    if (reader.has(key)) reader.problem(key, "is not supported");
  reader.require("add_cross_attention", false, "there is no encoder here");
  reader.require("is_encoder_decoder", false, "there is no encoder here");
  for (const char* key : {"pruned_heads"})
    if (const Json* heads = reader.object(key); heads != nullptr && !heads->empty())
      reader.problem(key, "is not supported; all heads of a layer must be there");
}

void check_architecture(ConfigReader& reader, HfFamily family) {
  const HfFamilyNames& names = names_of(family);
  const std::string with_head = names.architecture;
  // "LlamaModel": the same weights without an output layer of their own.
  std::string without_head = with_head.substr(0, with_head.find("For")) + "Model";
  if (family == HfFamily::kGpt2) without_head = "GPT2Model";
  const std::vector<std::string> given = reader.texts("architectures");
  for (const std::string& one : given)
    if (one != with_head && one != without_head)
      reader.problem("architectures", "'", one, "' is not supported; ", with_head, " is");
}

void read_common(ConfigReader& reader, HfModel& model) {
  GptConfig& config = model.config;
  config.vocab_size = config.padded_vocab_size = reader.required_size({"vocab_size"}, kMostRows);
  config.tie_output = reader.flag("tie_word_embeddings", !is_llama_like(model.family));
  config.init_method_std = reader.number("initializer_range", 0.02, 0, 1e6);
  const std::string old_name = reader.text("torch_dtype", "");
  const std::string dtype = reader.text("dtype", old_name);
  if (dtype == "float32") model.dtype = store::DType::kFloat32;
  if (dtype == "float16") model.dtype = store::DType::kFloat16;
  if (dtype == "bfloat16") model.dtype = store::DType::kBFloat16;
  refuse_what_changes_the_model(reader);
  check_architecture(reader, model.family);
  reader.ignore({"model_type",
                 "transformers_version",
                 "use_cache",
                 "bos_token_id",
                 "eos_token_id",
                 "pad_token_id",
                 "_name_or_path",
                 "return_dict",
                 "return_dict_in_generate",
                 "output_attentions",
                 "output_hidden_states",
                 "id2label",
                 "label2id",
                 "problem_type",
                 "chunk_size_feed_forward",
                 "task_specific_params",
                 "is_decoder",
                 "cross_attention_hidden_size",
                 "gradient_checkpointing",
                 "_attn_implementation",
                 "_attn_implementation_autoset",
                 "attn_implementation",
                 "auto_map",
                 "tokenizer_class",
                 "prefix",
                 "sep_token_id",
                 "decoder_start_token_id",
                 "tf_legacy_loss",
                 "use_bfloat16",
                 "torchscript",
                 "finetuning_task",
                 "num_labels",
                 "forced_bos_token_id",
                 "forced_eos_token_id",
                 "no_repeat_ngram_size"});
}

Json parse(const std::string& text, const std::string& origin) {
  const auto watch = [&](int depth, Json::parse_event_t, const Json&) {
    if (depth > kDeepest) throw UserError(concat(origin, ": nested more than ", kDeepest, " deep"), ExitCode::kBadData);
    return true;
  };
  try {
    Json json = Json::parse(text, watch);
    if (json.is_object()) return json;
    throw UserError(concat(origin, ": expected a JSON object, found ", json.type_name()), ExitCode::kBadData);
  } catch (const Json::parse_error& error) {
    throw UserError(error.byte > text.size()
                        ? concat(origin, ": expected JSON; it ends in the middle, after ", text.size(), " bytes")
                        : concat(origin, ": expected JSON; at byte ", error.byte, " of ", text.size(), " it is none"),
                    ExitCode::kBadData);
  } catch (const Json::exception&) {
    throw UserError(concat(origin, ": expected JSON; it has a number that is too large"), ExitCode::kBadData);
  }
}

HfFamily family_of(const Json& json, const std::string& origin) {
  std::vector<std::string> known;
  const auto type = json.find("model_type");
  for (const HfFamilyNames& names : hf_families()) {
    if (type != json.end() && *type == names.model_type) return names.family;
    known.push_back(names.model_type);
  }
  throw UserError(concat(origin, ": model_type: expected ", join(known, ", "), ", found ",
                         type == json.end() ? "nothing" : type->dump(-1, ' ', true, Json::error_handler_t::replace)),
                  ExitCode::kBadData);
}

}  // namespace

const std::vector<HfFamilyNames>& hf_families() {
  static const std::vector<HfFamilyNames> rows = {
      {HfFamily::kGpt2, "gpt2", "GPT2LMHeadModel"},    {HfFamily::kBloom, "bloom", "BloomForCausalLM"},
      {HfFamily::kLlama, "llama", "LlamaForCausalLM"}, {HfFamily::kMistral, "mistral", "MistralForCausalLM"},
      {HfFamily::kQwen2, "qwen2", "Qwen2ForCausalLM"}, {HfFamily::kQwen3, "qwen3", "Qwen3ForCausalLM"},
      {HfFamily::kPhi3, "phi3", "Phi3ForCausalLM"},
  };
  return rows;
}

const HfFamilyNames& names_of(HfFamily family) { return hf_families()[static_cast<size_t>(family)]; }

bool is_llama_like(HfFamily family) { return family != HfFamily::kGpt2 && family != HfFamily::kBloom; }

HfModel read_hf_config(const std::string& text, const std::string& origin) {
  const Json json = parse(text, origin);
  HfModel model;
  model.family = family_of(json, origin);
  Problems problems;
  ConfigReader reader(json, problems);
  read_common(reader, model);
  if (is_llama_like(model.family)) {
    read_llama_like(reader, model, problems);
  } else {
    if (model.family == HfFamily::kGpt2) read_gpt2(reader, model);
    if (model.family == HfFamily::kBloom) read_bloom(reader, model);
    read_heads(reader, model.config);
  }
  const std::vector<std::string> unknown = reader.unread_keys();
  if (!unknown.empty())
    model.notes.push_back("keys that are not known and taken to change nothing: " + join(unknown, ", "));
  if (problems.empty()) return model;
  throw UserError(concat(origin, ": ", join(problems.messages(), "\n" + origin + ": ")), ExitCode::kBadData);
}

}  // namespace espalier::convert
