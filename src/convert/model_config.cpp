#include "convert/model_config.h"

#include "base/error.h"
#include "base/format.h"
#include "base/options.h"

namespace espalier::convert {
namespace {

using spec::GptConfig;

std::string quoted_option(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) result += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return result + "\"";
}

// Lines of TOML, one for each option.
class Lines {
 public:
  void add(const std::string& key, int64_t value) { add_bare(key, std::to_string(value)); }
  void add(const std::string& key, double value) { add_bare(key, format_shortest(value)); }
  void add(const std::string& key, bool value) { add_bare(key, value ? "true" : "false"); }
  void add(const std::string& key, const std::string& value) { add_bare(key, quoted_option(value)); }
  void add(const std::string& key, const char* value) { add_bare(key, quoted_option(value)); }
  void add(const std::string& key, const std::vector<double>& values) {
    std::vector<std::string> words;
    for (const double value : values) words.push_back(format_shortest(value));
    add_bare(key, "[" + join(words, ", ") + "]");
  }
  const std::string& text() const { return text_; }

 private:
  void add_bare(const std::string& key, const std::string& value) { text_ += key + " = " + value + "\n"; }
  std::string text_;
};

const char* name_of(spec::PositionEmbedding positions) {
  switch (positions) {
    case spec::PositionEmbedding::kLearned: return "absolute";
    case spec::PositionEmbedding::kAlibi: return "alibi";
    case spec::PositionEmbedding::kRotary: return "rotary";
    case spec::PositionEmbedding::kNone: return "none";
  }
  return "";
}

const char* name_of(spec::Activation activation) {
  using A = spec::Activation;
  switch (activation) {
    case A::kGeluTanh:
    case A::kGeluErf: return "";  // another option says which
    case A::kRelu: return "relu";
    case A::kSquaredRelu: return "squared_relu";
    case A::kSilu: return "silu";
    case A::kSwiglu: return "swiglu";
    case A::kGeglu: return "geglu";
    case A::kGegluTanh: return "geglu_tanh";
    case A::kReglu: return "reglu";
    case A::kLiglu: return "liglu";
  }
  return "";
}

void add_rope_scaling(const spec::RopeScaling& scaling, Lines& lines) {
  using Kind = spec::RopeScaling::Kind;
  if (scaling.kind == Kind::kNone) return;
  lines.add("rope_scaling_type", scaling.kind == Kind::kLinear   ? "linear"
                                 : scaling.kind == Kind::kLlama3 ? "llama3"
                                 : scaling.kind == Kind::kYarn   ? "yarn"
                                                                 : "longrope");
  lines.add("rope_scaling_factor", scaling.factor);
  if (scaling.original_max_position_embeddings > 0)
    lines.add("rope_scaling_original_max_position_embeddings", scaling.original_max_position_embeddings);
  if (scaling.kind == Kind::kLlama3) {
    lines.add("rope_scaling_low_freq_factor", scaling.low_freq_factor);
    lines.add("rope_scaling_high_freq_factor", scaling.high_freq_factor);
  }
  if (scaling.kind == Kind::kYarn) {
    lines.add("rope_scaling_beta_fast", scaling.beta_fast);
    lines.add("rope_scaling_beta_slow", scaling.beta_slow);
  }
  if (scaling.attention_factor != 0) lines.add("rope_scaling_attention_factor", scaling.attention_factor);
  if (scaling.kind != Kind::kLongRope) return;
  lines.add("rope_scaling_short_factors", scaling.short_factors);
  lines.add("rope_scaling_long_factors", scaling.long_factors);
}

// What differs from the options' defaults.
void add_shape(const GptConfig& model, Lines& lines) {
  lines.add("num_layers", model.num_layers);
  lines.add("hidden_size", model.hidden_size);
  lines.add("ffn_hidden_size", model.ffn_hidden_size);
  lines.add("num_attention_heads", model.num_attention_heads);
  if (model.num_groups() != model.num_attention_heads) lines.add("num_key_value_heads", model.num_groups());
  lines.add("kv_channels", model.kv_channels);
  lines.add("max_position_embeddings", model.max_position_embeddings);
  lines.add("position_embedding_type", name_of(model.position_embedding));
  if (model.position_embedding == spec::PositionEmbedding::kRotary) {
    lines.add("rotary_position_embeddings_theta", model.rotary_base);
    lines.add("rotary_percent", model.rotary_percent);
    if (model.rotary_interleaved) lines.add("rotary_interleaved", true);
    add_rope_scaling(model.rope_scaling, lines);
  }
  if (model.window_size > 0) lines.add("window_size", std::to_string(model.window_size));
  if (model.normalization == spec::Normalization::kRmsNorm) lines.add("normalization", "rmsnorm");
  lines.add("layernorm_epsilon", model.layernorm_epsilon);
  if (model.qk_layernorm) lines.add("qk_layernorm", true);
  if (!model.add_bias_linear) lines.add("disable_bias_linear", true);
  if (model.add_qkv_bias) lines.add("add_qkv_bias", true);
  if (model.embed_layernorm) lines.add("embed_layernorm", true);
  if (!model.tie_output) lines.add("untie_embeddings_and_output_weights", true);
  if (model.residual_from_layernorm) lines.add("apply_residual_connection_post_layernorm", true);
  if (model.activation == spec::Activation::kGeluErf) lines.add("no_bias_gelu_fusion", true);
  if (*name_of(model.activation) != '\0') lines.add("activation", name_of(model.activation));
  lines.add("init_method_std", model.init_method_std);
  lines.add("hidden_dropout", model.hidden_dropout);
  lines.add("attention_dropout", model.attention_dropout);
}

void add_tokenizer(const text::TokenizerOptions& tokenizer, Lines& lines) {
  lines.add("tokenizer_type", tokenizer.type);
  if (!tokenizer.vocab_file.empty()) lines.add("vocab_file", tokenizer.vocab_file);
  if (!tokenizer.merge_file.empty()) lines.add("merge_file", tokenizer.merge_file);
  if (!tokenizer.name_or_path.empty()) lines.add("tokenizer_name_or_path", tokenizer.name_or_path);
  if (!tokenizer.model_file.empty()) lines.add("tokenizer_model", tokenizer.model_file);
  if (tokenizer.vocab_size) lines.add("vocab_size", *tokenizer.vocab_size);
}

}  // namespace

bool is_same_model(GptConfig a, const GptConfig& b) {
  a.vocab_size = b.vocab_size, a.padded_vocab_size = b.padded_vocab_size;
  a.num_query_groups = a.num_groups() == b.num_groups() ? b.num_query_groups : a.num_query_groups;
  return a == b;
}

std::string model_recipe(const GptConfig& model, plan::Precision precision, const text::TokenizerOptions& tokenizer) {
  Lines lines;
  add_shape(model, lines);
  lines.add("make_vocab_size_divisible_by", int64_t{1});
  lines.add("pad_vocab_size_to", model.padded_vocab_size);
  add_tokenizer(tokenizer, lines);
  if (precision == plan::Precision::kBf16) lines.add("bf16", true);
  if (precision == plan::Precision::kFp16) lines.add("fp16", true);
  return lines.text();
}

std::string imported_config(const GptConfig& model, const std::string& recipe) {
  Lines lines;
  lines.add("seq_length", model.max_position_embeddings);
  lines.add("micro_batch_size", int64_t{1});
  lines.add("eval_only", true);

  plan::RunConfig config;
  OptionTable table("espalier train gpt", "");
  table.say_notes(false);
  plan::add_gpt_options(table, config);
  Problems problems;
  table.parse_toml(recipe + lines.text(), "the imported model", problems);
  plan::resolve(config, table, problems);
  problems.raise(ExitCode::kBadData);
  ESPALIER_CHECK(is_same_model(config.model, model), "the options do not make the model:\n", recipe);
  return table.to_toml();
}

plan::RunConfig stored_config(const store::Manifest& manifest, const std::filesystem::path& step_folder) {
  plan::RunConfig config;
  OptionTable table("espalier train gpt", "");
  table.say_notes(false);
  plan::add_gpt_options(table, config);
  Problems problems;
  table.parse_toml(manifest.config, (step_folder / store::kManifestName).string(), problems);
  plan::resolve(config, table, problems);
  problems.raise(ExitCode::kBadData);
  config.model.vocab_size = manifest.model.vocab_size;
  config.model.padded_vocab_size = manifest.model.padded_vocab_size;
  return config;
}

}  // namespace espalier::convert
