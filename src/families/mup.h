// muP, the maximal update parametrization (Yang et al. 2022, arXiv:2203.03466): what is tuned on a narrow base model
// holds for one that is `width` times as wide. Its rules and names are Megatron-LM's --use-mup:
//   weights of layers  standard deviation / sqrt(width); learning rate and epsilon by spec::OptimizerKind::by_width
//   attention          scores * sqrt(head size of the base) / head size
//   embedding          * embedding_mult, after positions are added
//   logits             * output_mult, 1 / width unless given
// At width 1 all of it is what a model without muP has, to the bit.
#pragma once

#include <cstdint>
#include <optional>

#include "base/options.h"
#include "config/resolving.h"
#include "config/unused_options.h"

namespace espalier::families {

// Fields are named as their options.
struct Mup {
  bool mup = false;
  std::optional<int64_t> mup_base_hidden_size;
  double mup_embedding_mult = 1;
  std::optional<double> mup_output_mult;
  std::optional<double> mup_base_head_dim;  // none: that of the model itself, which then grows by heads

  double width(int64_t hidden_size) const;
  double output_mult(int64_t hidden_size) const;
  double embedding_mult() const { return mup ? mup_embedding_mult : 1; }
  // None: 1 / sqrt(head_size).
  std::optional<double> attention_scale(int64_t head_size) const;
  bool operator==(const Mup&) const = default;
};

void add_mup_rows(OptionTable& table, Mup& mup);
void refuse_mup_rows(OptionTable& table, const std::string& model);
void resolve_mup(const config::Resolving& resolving, const Mup& mup);
void find_unused_mup(const Mup& mup, config::UnusedOptions& unused);

}  // namespace espalier::families
