// Cross-checks of the options of a BERT, and the fields that they leave to be derived.
#include "config/resolving.h"
#include "config/unused_options.h"
#include "families/bert/internal/bert.h"
#include "families/transformer_options.h"

namespace espalier::families::internal {
namespace {

void check_bert_length(const config::Resolving& resolving, const BertConfig& model) {
  const int64_t length = resolving.run.data.sequence_length;
  if (length == 0) return;
  if (model.max_position_embeddings > 0 && model.max_position_embeddings < length)
    resolving.problems.add(resolving.origin("--max-position-embeddings"), " is below the sequence length ", length,
                           "; use ", length, " or more");
  check_no_document_options(resolving, "BERT");
}

void resolve_bert_sizes(const config::Resolving& resolving, BertConfig& model) {
  const int64_t hidden = model.hidden_size;
  if (hidden > 0 && model.ffn_hidden_size == 0) model.ffn_hidden_size = 4 * hidden;
  resolve_head_size(resolving, hidden, model.num_attention_heads, model.kv_channels);
}

}  // namespace

void resolve_bert_model(const config::Resolving& resolving, BertSettings& settings) {
  BertConfig& model = settings.shape;
  check_bert_length(resolving, model);
  resolve_bert_sizes(resolving, model);
  using spec::Activation;
  model.activation = settings.gelu_is_fused || settings.openai_gelu ? Activation::kGeluTanh : Activation::kGeluErf;
  model.head_activation = settings.openai_gelu ? Activation::kGeluTanh : Activation::kGeluErf;
  model.num_tokentypes = settings.num_tokentypes.value_or(model.binary_head ? 2 : 0);
  if (model.binary_head && model.num_tokentypes < 2)
    resolving.problems.add(resolving.origin("--bert-num-tokentypes"),
                           " is too few for the two halves of a sample; use 2 or more, or --bert-no-binary-head");
  check_dropout(resolving, model.attention_dropout, model.hidden_dropout);
  check_tensor_division(resolving, model.num_attention_heads, model.ffn_hidden_size);
}

void resolve_bert(const config::Resolving& resolving, config::FamilyConfig& config) {
  resolve_bert_model(resolving, config.as<BertSettings>());
  // A missing length is already reported.
  if (resolving.run.data.sequence_length > 0) bert_samples(resolving.run).check(resolving.problems);
}

// Every option of the family has its effect whatever the others are.
void find_unused_bert(const config::RunConfig&, config::UnusedOptions&) {}

}  // namespace espalier::families::internal
