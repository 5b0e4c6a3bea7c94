// The rows of `espalier train t5` that the family adds, and those of other families that it refuses.
#include "families/sentence_options.h"
#include "families/t5/internal/t5.h"
#include "families/transformer_options.h"

namespace espalier::families {
namespace {

void add_t5_size(OptionTable& table, T5Settings& settings) {
  T5Config& model = settings.shape;
  const auto size = [&](const char* name, int64_t& target, double maximum, const char* help) -> Option& {
    return table.add(name, target, help).minimum(1).maximum(maximum).on_resume(ResumeRule::kRefused);
  };
  size("--num-layers", model.num_layers, 1e4,
       "layers of the encoder, and of the decoder unless the next row says otherwise")
      .alias("--encoder-num-layers")
      .required()
      .common();
  size("--decoder-num-layers", model.decoder_num_layers, 1e4, "layers of the decoder").default_text("--num-layers");
  size("--hidden-size", model.hidden_size, 1e6, "width of the residual stream").required().common();
  size("--ffn-hidden-size", model.ffn_hidden_size, 1e7, "width inside the MLP").default_text("4 * hidden size");
  size("--num-attention-heads", model.num_attention_heads, 1e5, "attention heads").required().common();
  size("--kv-channels", model.kv_channels, 1e5, "width of one head").default_text("hidden size / heads");
  size("--max-position-embeddings", model.max_position_embeddings, 1e9,
       "longest sequence of the model; at least the longer of the encoder's and the decoder's. Relative positions need "
       "no number")
      .default_text("none")
      .common();
  table
      .add("--pipeline-model-parallel-split-rank", settings.split_rank,
           "first pipeline stage of the decoder: the stages before it divide the encoder's layers, the others the "
           "decoder's")
      .minimum(1)
      .default_text("half of the stages")
      .on_resume(ResumeRule::kFree);
}

void add_t5_positions(OptionTable& table, T5Config& model) {
  Option& positions = table
                          .add_choice("--position-embedding-type", model.positions,
                                      {{"absolute", T5Positions::kLearned},
                                       {"learned_absolute", T5Positions::kLearned},
                                       {"relative", T5Positions::kRelative}},
                                      "learned positions, one table for both sequences; or biases of attention scores "
                                      "by distance (Raffel et al.)")
                          .on_resume(ResumeRule::kRefused);
  for (const char* other : {"rotary", "rope", "alibi", "none"})
    positions.refuse_value(other, "a T5 has absolute or relative positions");
  table
      .add("--relative-attention-num-buckets", model.relative_attention_num_buckets,
           "of relative positions: rows of the table of biases")
      .minimum(4)
      .maximum(1e6)
      .on_resume(ResumeRule::kRefused);
  table
      .add("--relative-attention-max-distance", model.relative_attention_max_distance,
           "of relative positions: longer distances have the bias of the last row")
      .minimum(2)
      .maximum(1e9)
      .on_resume(ResumeRule::kRefused);
}

void add_t5_shape(OptionTable& table, T5Settings& settings) {
  T5Config& model = settings.shape;
  table.add("--layernorm-epsilon", model.layernorm_epsilon, "added to the variance in norms")
      .minimum(0)
      .alias("--norm-epsilon");
  table.add("--apply-residual-connection-post-layernorm", model.residual_from_layernorm,
            "residual branches start after the norm (the order of the first BERT)");
  table
      .add_choice("--normalization", model.normalization,
                  {{"layernorm", spec::Normalization::kLayerNorm},
                   {"LayerNorm", spec::Normalization::kLayerNorm},
                   {"rmsnorm", spec::Normalization::kRmsNorm},
                   {"RMSNorm", spec::Normalization::kRmsNorm}},
                  "of all norms; rmsnorm is that of Raffel et al.")
      .on_resume(ResumeRule::kRefused);
  table
      .add_negative("--disable-bias-linear", model.add_bias_linear,
                    "no biases in linear layers, and none of the logits")
      .on_resume(ResumeRule::kRefused);
  table
      .add_negative("--untie-embeddings-and-output-weights", model.tie_output,
                    "the output layer has weights of its own")
      .on_resume(ResumeRule::kRefused);
  table
      .add("--scale-tied-logits", model.scale_tied_output,
           "what a tied output layer multiplies is divided by sqrt(hidden size) first (Raffel et al.)")
      .on_resume(ResumeRule::kRefused);
  table
      .add_negative("--unscaled-attention-scores", model.scale_attention,
                    "attention scores are not divided by sqrt(head size) (Raffel et al.)")
      .on_resume(ResumeRule::kRefused);
  std::vector<std::string> names;
  for (const auto& [name, activation] : activation_names()) names.push_back(name);
  table
      .add("--activation", settings.activation,
           "of the MLP; swiglu, geglu (erf), geglu_tanh, reglu and liglu (none) are gated: activation(gate) * up")
      .choices(names)
      .default_text("as the next rows say");
  table.add_negative("--no-bias-gelu-fusion", settings.gelu_is_fused,
                     "exact (erf) gelu instead of the tanh form, as upstream");
  table.add("--openai-gelu", settings.openai_gelu, "tanh gelu also with --no-bias-gelu-fusion");
  add_t5_positions(table, model);
  refuse_decoder_rows(table, "T5");
  const char* const activation = "use --activation";
  for (const char* name : {"--swiglu", "--squared-relu"})
    table.add_refused(name, OptionTable::Takes::kFlag, activation);
  table.add_refused("--glu-activation", OptionTable::Takes::kOne, activation);
}

void add_t5_data(OptionTable& table, T5Settings& settings) {
  add_decoder_length_row(table, settings.decoder_seq_length).common();
  add_masking_rows(table, data::SentenceModel::kT5, settings.mask_probability, settings.short_probability).common();
}

}  // namespace

namespace internal {

void add_t5_options(OptionTable& table, config::FamilyConfig& config, config::FamilyRows where) {
  T5Settings& settings = config.as<T5Settings>();
  T5Config& model = settings.shape;
  switch (where) {
    case config::FamilyRows::kSize: add_t5_size(table, settings); break;
    case config::FamilyRows::kShape: add_t5_shape(table, settings); break;
    case config::FamilyRows::kRegularization:
      add_dropout_rows(table, model.attention_dropout, model.hidden_dropout);
      break;
    case config::FamilyRows::kInitialization: add_initialization_row(table, model.init_method_std); break;
    case config::FamilyRows::kData: add_t5_data(table, settings); break;
  }
}

}  // namespace internal
}  // namespace espalier::families
