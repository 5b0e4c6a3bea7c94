// The rows of `espalier train bert` that the family adds, and those of other families that it refuses.
#include "families/bert/internal/bert.h"
#include "families/sentence_options.h"
#include "families/transformer_options.h"

namespace espalier::families {
namespace {

void add_bert_size(OptionTable& table, BertConfig& model) {
  const auto size = [&](const char* name, int64_t& target, double maximum, const char* help) -> Option& {
    return table.add(name, target, help).minimum(1).maximum(maximum).on_resume(ResumeRule::kRefused);
  };
  size("--num-layers", model.num_layers, 1e4, "transformer blocks").alias("--encoder-num-layers").required().common();
  size("--hidden-size", model.hidden_size, 1e6, "width of the residual stream").required().common();
  size("--ffn-hidden-size", model.ffn_hidden_size, 1e7, "width inside the MLP").default_text("4 * hidden size");
  size("--num-attention-heads", model.num_attention_heads, 1e5, "attention heads").required().common();
  size("--kv-channels", model.kv_channels, 1e5, "width of one head").default_text("hidden size / heads");
  size("--max-position-embeddings", model.max_position_embeddings, 1e9,
       "longest sequence of the model; at least the sequence length")
      .required()
      .common();
}

void add_bert_shape(OptionTable& table, BertSettings& settings) {
  BertConfig& model = settings.shape;
  table.add("--layernorm-epsilon", model.layernorm_epsilon, "added to the variance in norms")
      .minimum(0)
      .alias("--norm-epsilon");
  table.add("--apply-residual-connection-post-layernorm", model.residual_from_layernorm,
            "residual branches start after the layer norm (the order of the first BERT)");
  table
      .add("--bert-num-tokentypes", settings.num_tokentypes,
           "token types, of which the halves of a sample have the first two")
      .minimum(0)
      .maximum(1e6)
      .default_text("2; 0 without the binary head")
      .on_resume(ResumeRule::kRefused);
  table.add_negative("--no-bias-gelu-fusion", settings.gelu_is_fused,
                     "exact (erf) gelu in the layers instead of the tanh form, as upstream");
  table.add("--openai-gelu", settings.openai_gelu,
            "tanh gelu in the masked-LM head, which is exact otherwise, and in the layers");
}

// What Megatron's decoders have and its BERT has not, or what this one has not.
void refuse_rows_of_decoders(OptionTable& table) {
  using Takes = OptionTable::Takes;
  const auto refuse = [&](Takes takes, const char* reason, std::initializer_list<const char*> names) {
    for (const char* name : names) table.add_refused(name, takes, reason);
  };
  refuse_decoder_rows(table, "BERT");
  refuse(Takes::kFlag, "the layers of a BERT have layer norms and biases; leave it out", {"--disable-bias-linear"});
  refuse(Takes::kFlag, "the masked-LM head of a BERT uses the word embeddings; leave it out",
         {"--untie-embeddings-and-output-weights"});
  const char* const gelu = "the activation of a BERT is gelu; leave it out";
  refuse(Takes::kFlag, gelu, {"--swiglu", "--squared-relu"});
  refuse(Takes::kOne, gelu, {"--activation", "--glu-activation"});
}

void add_choices_of_one(OptionTable& table, BertSettings& settings) {
  static constexpr const char* kLearnedOnly = "a BERT learns its positions; use absolute, or leave it out";
  Option& positions = table.add("--position-embedding-type", settings.position_type, "learned positions, the only ones")
                          .choices({"absolute", "learned_absolute"})
                          .on_resume(ResumeRule::kRefused);
  for (const char* other : {"rotary", "rope", "alibi", "none"}) positions.refuse_value(other, kLearnedOnly);
  Option& norms = table.add("--normalization", settings.normalization, "layer norm, the only one")
                      .choices({"layernorm", "LayerNorm"})
                      .on_resume(ResumeRule::kRefused);
  for (const char* other : {"rmsnorm", "RMSNorm"})
    norms.refuse_value(other, "the norms of a BERT are layer norms; leave it out");
}

}  // namespace

namespace internal {

void add_bert_model_rows(OptionTable& table, BertSettings& settings, config::FamilyRows where) {
  BertConfig& model = settings.shape;
  switch (where) {
    case config::FamilyRows::kSize: add_bert_size(table, model); break;
    case config::FamilyRows::kShape:
      add_bert_shape(table, settings);
      add_choices_of_one(table, settings);
      refuse_rows_of_decoders(table);
      break;
    case config::FamilyRows::kRegularization:
      add_dropout_rows(table, model.attention_dropout, model.hidden_dropout);
      break;
    case config::FamilyRows::kInitialization: add_initialization_row(table, model.init_method_std); break;
    case config::FamilyRows::kData: break;
  }
}

void add_bert_options(OptionTable& table, config::FamilyConfig& config, config::FamilyRows where) {
  BertSettings& settings = config.as<BertSettings>();
  add_bert_model_rows(table, settings, where);
  if (where == config::FamilyRows::kShape)
    add_binary_head_row(table, settings.shape.binary_head).common().on_resume(ResumeRule::kRefused);
  if (where == config::FamilyRows::kData)
    add_masking_rows(table, data::SentenceModel::kBert, settings.mask_probability, settings.short_probability).common();
}

}  // namespace internal
}  // namespace espalier::families
