// The rows of `espalier train gpt` that give the shape of the model (group "network size").
#include "families/gpt/internal/gpt.h"
#include "families/transformer_options.h"

namespace espalier::families {
namespace {

void add_norms_and_biases(OptionTable& table, GptSettings& settings) {
  GptConfig& model = settings.shape;
  using spec::Normalization;
  table
      .add_choice("--normalization", model.normalization,
                  {{"layernorm", Normalization::kLayerNorm},
                   {"rmsnorm", Normalization::kRmsNorm},
                   {"LayerNorm", Normalization::kLayerNorm},
                   {"RMSNorm", Normalization::kRmsNorm}},
                  "norms of the layers: layer norm, or RMS norm, which has no bias and subtracts no mean")
      .common()
      .on_resume(ResumeRule::kRefused);
  table.add("--layernorm-epsilon", model.layernorm_epsilon, "added to the variance in norms")
      .minimum(0)
      .alias("--norm-epsilon");
  table.add("--qk-layernorm", model.qk_layernorm, "RMS norm of every query and key head before it is rotated (Qwen3)")
      .on_resume(ResumeRule::kRefused);
  table.add_negative("--disable-bias-linear", model.add_bias_linear, "linear layers without biases")
      .on_resume(ResumeRule::kRefused);
  table
      .add("--add-qkv-bias", model.add_qkv_bias,
           "query, key and value have a bias even with --disable-bias-linear (Qwen2)")
      .on_resume(ResumeRule::kRefused);
  table.add("--apply-residual-connection-post-layernorm", model.residual_from_layernorm,
            "residual branches start after the layer norm (BERT's order)");
  table.add("--embed-layernorm", model.embed_layernorm, "layer norm after the word embedding (BLOOM)")
      .common()
      .on_resume(ResumeRule::kRefused);
}

void add_positions(OptionTable& table, GptSettings& settings) {
  GptConfig& model = settings.shape;
  GptOptions& options = settings.options;
  table
      .add_choice("--position-embedding-type", model.position_embedding,
                  {{"absolute", PositionEmbedding::kLearned},
                   {"alibi", PositionEmbedding::kAlibi},
                   {"rotary", PositionEmbedding::kRotary},
                   {"none", PositionEmbedding::kNone},
                   {"learned_absolute", PositionEmbedding::kLearned},
                   {"rope", PositionEmbedding::kRotary}},
                  "learned positions, ALiBi, rotary positions (Su et al. 2021), or none")
      .common()
      .refuse_value("yarn", "use rotary with --rope-scaling-type yarn")
      .refuse_value("mrope", "positions have one dimension here; use rotary")
      .on_resume(ResumeRule::kRefused);
  table.add("--use-rotary-position-embeddings", options.use_rotary, "the same as --position-embedding-type rotary")
      .on_resume(ResumeRule::kRefused);
  table
      .add("--no-position-embedding", options.no_position_embedding,
           "no learned positions: --position-embedding-type none, unless it is rotary or alibi")
      .on_resume(ResumeRule::kRefused);
  table.add("--rotary-position-embeddings-theta", model.rotary_base, "base of the wavelengths of rotary positions")
      .minimum(1)
      .alias("--rotary-base");
  table.add("--rotary-percent", model.rotary_percent, "share of the channels of a head that rotates, the first ones")
      .maximum(1);
  table.add("--rotary-interleaved", model.rotary_interleaved,
            "pairs of rotated channels are neighbours (GPT-J), not half a head apart");
  table
      .add("--window-size", options.window_size,
           "a query sees at most the last N keys, itself included; or Megatron's LEFT,0: LEFT keys before itself")
      .default_text("all keys before it");
}

void add_rope_scaling(OptionTable& table, GptSettings& settings) {
  spec::RopeScaling& scaling = settings.shape.rope_scaling;
  GptOptions& options = settings.options;
  using Kind = spec::RopeScaling::Kind;
  table
      .add_choice("--rope-scaling-type", scaling.kind,
                  {{"none", Kind::kNone},
                   {"linear", Kind::kLinear},
                   {"llama3", Kind::kLlama3},
                   {"yarn", Kind::kYarn},
                   {"longrope", Kind::kLongRope}},
                  "how rotary positions are stretched over longer sequences, as Hugging Face's rope_scaling")
      .refuse_value("dynamic", "its frequencies change with the length of each input; use yarn or linear");
  table.add("--rope-scaling-factor", scaling.factor, "longest sequence / longest before the scaling")
      .minimum(1)
      .alias("--rotary-scaling-factor");
  table.add("--use-rope-scaling", options.use_rope_scaling,
            "the same as --rope-scaling-type llama3, with Llama 3.1's values for what is not given");
  table
      .add("--rotary-seq-len-interpolation-factor", options.interpolation_factor,
           "the same as --rope-scaling-type linear with this factor")
      .minimum(1)
      .default_text("none");
  table
      .add("--rope-scaling-original-max-position-embeddings", scaling.original_max_position_embeddings,
           "longest sequence before the scaling (llama3, yarn, longrope)")
      .minimum(0)
      .maximum(1e9)
      .alias("--original-max-position-embeddings")
      .alias("--yarn-original-max-position-embeddings")
      .default_text("none");
  table
      .add("--rope-scaling-low-freq-factor", scaling.low_freq_factor,
           "llama3: waves longer than original / this are stretched")
      .minimum(0);
  table
      .add("--rope-scaling-high-freq-factor", scaling.high_freq_factor,
           "llama3: waves shorter than original / this stay unchanged")
      .minimum(0);
  table.add("--rope-scaling-beta-fast", scaling.beta_fast, "yarn: channels that turn more often stay unchanged")
      .minimum(0)
      .alias("--beta-fast")
      .alias("--yarn-beta-fast");
  table.add("--rope-scaling-beta-slow", scaling.beta_slow, "yarn: channels that turn less often are stretched")
      .minimum(0)
      .alias("--beta-slow")
      .alias("--yarn-beta-slow");
  table
      .add("--rope-scaling-attention-factor", scaling.attention_factor,
           "yarn, longrope: multiplies rotated queries and keys; 0: as the method derives it from the factor")
      .minimum(0);
  table
      .add("--rope-scaling-short-factors", options.short_factors,
           "longrope: divisor of each frequency for sequences up to the original length")
      .value_name("NUMBER");
  table.add("--rope-scaling-long-factors", options.long_factors, "longrope: the same for longer sequences")
      .value_name("NUMBER");
}

void add_activations(OptionTable& table, GptSettings& settings) {
  GptOptions& options = settings.options;
  std::vector<std::string> names;
  for (const auto& [name, activation] : activation_names()) names.push_back(name);
  table
      .add("--activation", options.activation,
           "of the MLP; swiglu, geglu (erf), geglu_tanh, reglu and liglu (none) are gated: activation(gate) * up")
      .choices(names)
      .default_text("as the next rows say");
  table.add("--swiglu", options.swiglu,
            "the same as --activation swiglu; the MLP's width defaults to 2/3 of 4 * hidden size, in multiples of 64");
  table
      .add("--glu-activation", options.glu_activation,
           "the same as --activation; the MLP's width still defaults to 4 * hidden size")
      .choices({"geglu", "liglu", "reglu", "swiglu"})
      .default_text("none");
  table.add("--squared-relu", options.squared_relu, "the same as --activation squared_relu");
  table.add_negative("--no-bias-gelu-fusion", options.gelu_is_fused,
                     "exact (erf) gelu instead of the tanh form, as upstream");
  table.add("--openai-gelu", options.openai_gelu, "tanh gelu also with --no-bias-gelu-fusion");
}

void add_heads(OptionTable& table, GptSettings& settings) {
  GptConfig& model = settings.shape;
  GptOptions& options = settings.options;
  table.add("--num-attention-heads", model.num_attention_heads, "attention heads")
      .required()
      .minimum(1)
      .maximum(1e5)
      .common()
      .on_resume(ResumeRule::kRefused);
  table
      .add("--num-key-value-heads", options.num_key_value_heads,
           "heads of keys and values; each serves a group of query heads (grouped-query attention)")
      .minimum(1)
      .maximum(1e5)
      .default_text("attention heads")
      .common()
      .on_resume(ResumeRule::kRefused);
  table
      .add("--group-query-attention", options.group_query_attention,
           "use --num-query-groups (one group if it is not given)")
      .on_resume(ResumeRule::kRefused);
  table.add("--num-query-groups", options.num_query_groups, "the same as --num-key-value-heads, as NVIDIA spells it")
      .minimum(1)
      .maximum(1e5)
      .default_text("none")
      .on_resume(ResumeRule::kRefused);
  table.add("--kv-channels", model.kv_channels, "width of one head")
      .minimum(1)
      .maximum(1e5)
      .default_text("hidden size / heads")
      .on_resume(ResumeRule::kRefused);
}

void add_size(OptionTable& table, GptSettings& settings) {
  GptConfig& model = settings.shape;
  table.add("--num-layers", model.num_layers, "transformer blocks")
      .alias("--encoder-num-layers")
      .required()
      .minimum(1)
      .maximum(1e4)
      .common()
      .on_resume(ResumeRule::kRefused);
  table.add("--hidden-size", model.hidden_size, "width of the residual stream")
      .required()
      .minimum(1)
      .maximum(1e6)
      .common()
      .on_resume(ResumeRule::kRefused);
  table.add("--ffn-hidden-size", model.ffn_hidden_size, "width inside the MLP")
      .minimum(1)
      .maximum(1e7)
      .default_text("4 * hidden size")
      .on_resume(ResumeRule::kRefused);
  add_heads(table, settings);
  table
      .add("--max-position-embeddings", model.max_position_embeddings,
           "longest sequence of the model; at least the sequence length, also with alibi. Rotary positions and none "
           "need no number")
      .minimum(1)
      .maximum(1e9)
      .default_text("none")
      .common()
      .on_resume(ResumeRule::kRefused);
}

void add_shape(OptionTable& table, GptSettings& settings) {
  add_norms_and_biases(table, settings);
  add_positions(table, settings);
  add_rope_scaling(table, settings);
  table
      .add("--untie-embeddings-and-output-weights", settings.options.untie_output,
           "the output layer has weights of its own")
      .on_resume(ResumeRule::kRefused);
  add_activations(table, settings);
  table
      .add("--logit-soft-cap", settings.shape.logit_soft_cap,
           "C: logits become C tanh(logits / C), between -C and C, as in Gemma 2, which uses 30; 0: off")
      .value_name("C")
      .minimum(0)
      .maximum(1e6);
  table
      .add("--attn-logit-soft-cap", settings.shape.attn_logit_soft_cap,
           "C: scaled attention scores become C tanh(score / C), as in Gemma 2, which uses 50; 0: off")
      .value_name("C")
      .minimum(0)
      .maximum(1e6);
  table.add("--fp32-residual-connection", settings.shape.fp32_residual,
            "the residual stream is fp32, with --bf16 and --fp16 too; layers read and write the compute type");
  table.known_elsewhere({"--attn-logit-softcapping", "--attn-logits-soft-cap", "--attention-logits-soft-cap"},
                        "--attn-logit-soft-cap");
  table.known_elsewhere({"--final-logit-softcapping", "--final-logits-soft-cap", "--logits-soft-cap"},
                        "--logit-soft-cap");
}

}  // namespace

namespace internal {

void add_gpt_options(OptionTable& table, config::FamilyConfig& config, config::FamilyRows where) {
  GptSettings& settings = config.as<GptSettings>();
  GptConfig& model = settings.shape;
  switch (where) {
    case config::FamilyRows::kSize: add_size(table, settings); break;
    case config::FamilyRows::kShape: add_shape(table, settings); break;
    case config::FamilyRows::kRegularization:
      add_dropout_rows(table, model.attention_dropout, model.hidden_dropout);
      break;
    case config::FamilyRows::kInitialization:
      add_initialization_row(table, model.init_method_std);
      add_mup_rows(table, model.mup);
      break;
    case config::FamilyRows::kData: add_objective_rows(table, settings.objective); break;
  }
}

}  // namespace internal
}  // namespace espalier::families
