#include "families/transformer_options.h"

namespace espalier::families {

void add_dropout_rows(OptionTable& table, double& attention_dropout, double& hidden_dropout) {
  table.add("--attention-dropout", attention_dropout, "dropout of attention probabilities").minimum(0).common();
  table.add("--hidden-dropout", hidden_dropout, "dropout before residual additions").minimum(0).common();
}

void add_initialization_row(OptionTable& table, double& init_method_std) {
  table
      .add("--init-method-std", init_method_std,
           "standard deviation of weights; output layers of a block get it / sqrt(2 * layers)")
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

}  // namespace espalier::families
