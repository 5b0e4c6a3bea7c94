// Cross-checks of the options of a BERT, and the fields that they leave to be derived.
#include <numeric>

#include "base/format.h"
#include "config/resolving.h"
#include "config/unused_options.h"
#include "families/bert/internal/bert.h"
#include "families/transformer_options.h"

namespace espalier::families::internal {
namespace {

using plan::divisors_near;

void check_bert_length(const config::Resolving& resolving, const BertConfig& model) {
  const int64_t length = resolving.run.data.sequence_length;
  if (length == 0) return;
  if (model.max_position_embeddings > 0 && model.max_position_embeddings < length)
    resolving.problems.add(resolving.origin("--max-position-embeddings"), " is below the sequence length ", length,
                           "; use ", length, " or more");
  for (const char* name : {"--reset-position-ids", "--reset-attention-mask", "--eod-mask-loss"}) {
    const Option& option = *resolving.table.find(name);
    if (option.values() != option.default_values())
      resolving.problems.add(resolving.origin(name),
                             " is for decoders, whose samples run over the ends of documents; a BERT's sample is of "
                             "one document. Leave it out");
  }
}

void resolve_bert_sizes(const config::Resolving& resolving, BertConfig& model) {
  const int64_t hidden = model.hidden_size;
  if (hidden > 0 && model.ffn_hidden_size == 0) model.ffn_hidden_size = 4 * hidden;
  resolve_head_size(resolving, hidden, model.num_attention_heads, model.kv_channels);
}

void check_bert_division(const config::Resolving& resolving, const BertConfig& model) {
  const spec::GridShape& grid = resolving.run.grid;
  const int64_t heads = model.num_attention_heads, ffn = model.ffn_hidden_size;
  if (heads == 0) return;
  if (heads % grid.tensor != 0 || ffn % grid.tensor != 0)
    resolving.problems.add(
        resolving.origin("--tensor-model-parallel-size"), " does not divide ",
        heads % grid.tensor != 0 ? resolving.origin("--num-attention-heads") : concat("the MLP's width ", ffn),
        "; use ", divisors_near(grid.tensor, std::gcd(heads, ffn)));
  else if (heads / grid.tensor % grid.context != 0)
    resolving.problems.add(resolving.origin("--context-parallel-size"), " does not divide the ", heads / grid.tensor,
                           " heads of a tensor rank (", heads, " / ", grid.tensor, "), which attention exchanges; use ",
                           divisors_near(grid.context, heads / grid.tensor));
}

}  // namespace

void resolve_bert(const config::Resolving& resolving, config::FamilyConfig& config) {
  BertSettings& settings = config.as<BertSettings>();
  BertConfig& model = settings.shape;
  check_bert_length(resolving, model);
  resolve_bert_sizes(resolving, model);
  using spec::Activation;
  model.activation = settings.gelu_is_fused || settings.openai_gelu ? Activation::kGeluTanh : Activation::kGeluErf;
  model.head_activation = settings.openai_gelu ? Activation::kGeluTanh : Activation::kGeluErf;
  check_dropout(resolving, model.attention_dropout, model.hidden_dropout);
  // Of a length that is missing, that is said already.
  if (resolving.run.data.sequence_length > 0) bert_samples(resolving.run).check(resolving.problems);
  check_bert_division(resolving, model);
}

// Every option of the family has its effect whatever the others are.
void find_unused_bert(const config::RunConfig&, config::UnusedOptions&) {}

}  // namespace espalier::families::internal
