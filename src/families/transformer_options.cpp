#include "families/transformer_options.h"

#include <numeric>

#include "base/format.h"
#include "families/mup.h"

namespace espalier::families {

const std::vector<std::pair<std::string, spec::Activation>>& activation_names() {
  using spec::Activation;
  static const std::vector<std::pair<std::string, Activation>> names = {
      {"gelu_tanh", Activation::kGeluTanh}, {"gelu", Activation::kGeluErf},
      {"relu", Activation::kRelu},          {"squared_relu", Activation::kSquaredRelu},
      {"silu", Activation::kSilu},          {"swiglu", Activation::kSwiglu},
      {"geglu", Activation::kGeglu},        {"geglu_tanh", Activation::kGegluTanh},
      {"reglu", Activation::kReglu},        {"liglu", Activation::kLiglu}};
  return names;
}

void add_dropout_rows(OptionTable& table, double& attention_dropout, double& hidden_dropout) {
  table.add("--attention-dropout", attention_dropout, "dropout of attention probabilities").minimum(0).common();
  table.add("--hidden-dropout", hidden_dropout, "dropout before residual additions").minimum(0).common();
}

void add_initialization_row(OptionTable& table, double& init_method_std) {
  table
      .add("--init-method-std", init_method_std,
           "standard deviation of weights; output layers of a block use this / sqrt(2 * layers)")
      .minimum(0)
      .common();
}

void resolve_head_size(const config::Resolving& resolving, int64_t hidden_size, int64_t num_heads,
                       int64_t& kv_channels) {
  if (hidden_size <= 0 || num_heads <= 0 || kv_channels != 0) return;
  if (hidden_size % num_heads != 0)
    resolving.problems.add(resolving.origin("--hidden-size"), " is not a multiple of ",
                           resolving.origin("--num-attention-heads"), "; use a hidden size of ",
                           plan::multiples_near(hidden_size, num_heads), ", or ",
                           plan::divisors_near(num_heads, hidden_size), " heads, or give --kv-channels");
  kv_channels = hidden_size / num_heads;
}

void check_dropout(const config::Resolving& resolving, double attention_dropout, double hidden_dropout) {
  const auto check = [&](const char* name, double rate) {
    if (rate >= 1)
      resolving.problems.add(resolving.origin(name), " drops everything; use a share below 1, such as 0.1");
  };
  check("--hidden-dropout", hidden_dropout);
  check("--attention-dropout", attention_dropout);
}

void refuse_decoder_rows(OptionTable& table, const std::string& model) {
  using Takes = OptionTable::Takes;
  const auto refuse = [&](Takes takes, const std::string& reason, std::initializer_list<const char*> names) {
    for (const char* name : names) table.add_refused(name, takes, reason + "; leave it out");
  };
  const std::string positions = "the positions of a " + model + " do not rotate, nor are they left out";
  refuse(Takes::kFlag, positions,
         {"--use-rotary-position-embeddings", "--no-position-embedding", "--rotary-interleaved", "--use-rope-scaling"});
  refuse(Takes::kOne, positions,
         {"--rotary-position-embeddings-theta", "--rotary-base", "--rotary-percent", "--rope-scaling-type",
          "--rope-scaling-factor", "--rotary-seq-len-interpolation-factor"});
  refuse(Takes::kOne, "attention of a " + model + " has no window", {"--window-size"});
  const std::string heads = "each query head of a " + model + " has a key and a value head of its own";
  refuse(Takes::kOne, heads, {"--num-key-value-heads", "--num-query-groups"});
  refuse(Takes::kFlag, heads, {"--group-query-attention"});
  refuse(Takes::kFlag, "queries and keys of a " + model + " have no norm and no bias of their own",
         {"--qk-layernorm", "--add-qkv-bias"});
  refuse_mup_rows(table, model);
  refuse(Takes::kFlag, "a " + model + " has no norm after its embeddings", {"--embed-layernorm"});
}

void check_tensor_division(const config::Resolving& resolving, int64_t num_heads, int64_t ffn_hidden_size) {
  const spec::GridShape& grid = resolving.run.grid;
  if (num_heads == 0) return;
  if (num_heads % grid.tensor != 0 || ffn_hidden_size % grid.tensor != 0)
    resolving.problems.add(resolving.origin("--tensor-model-parallel-size"), " does not divide ",
                           num_heads % grid.tensor != 0 ? resolving.origin("--num-attention-heads")
                                                        : concat("the MLP's width ", ffn_hidden_size),
                           "; use ", plan::divisors_near(grid.tensor, std::gcd(num_heads, ffn_hidden_size)));
  else if (num_heads / grid.tensor % grid.context != 0)
    resolving.problems.add(resolving.origin("--context-parallel-size"), " does not divide the ",
                           num_heads / grid.tensor, " heads of a tensor rank (", num_heads, " / ", grid.tensor,
                           "), which attention exchanges; use ",
                           plan::divisors_near(grid.context, num_heads / grid.tensor));
}

void check_no_document_options(const config::Resolving& resolving, const char* whose) {
  for (const char* name : {"--reset-position-ids", "--reset-attention-mask", "--eod-mask-loss"}) {
    const Option& option = *resolving.table.find(name);
    if (option.values() != option.default_values())
      resolving.problems.add(resolving.origin(name),
                             " is for decoders, whose samples run over the ends of documents; a ", whose,
                             "'s sample comes from one document. Leave it out");
  }
}

}  // namespace espalier::families
