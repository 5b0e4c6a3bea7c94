#include "families/mup.h"

#include <cmath>

#include "spec/optimizer.h"

namespace espalier::families {

double Mup::width(int64_t hidden_size) const {
  return mup && mup_base_hidden_size ? static_cast<double>(hidden_size) / static_cast<double>(*mup_base_hidden_size)
                                     : 1;
}

double Mup::output_mult(int64_t hidden_size) const {
  return mup ? mup_output_mult.value_or(1 / width(hidden_size)) : 1;
}

std::optional<double> Mup::attention_scale(int64_t head_size) const {
  const auto size = static_cast<double>(head_size);
  if (!mup || !mup_base_head_dim || *mup_base_head_dim == size) return std::nullopt;
  return std::sqrt(*mup_base_head_dim) / size;
}

void add_mup_rows(OptionTable& table, Mup& mup) {
  table
      .add("--mup", mup.mup,
           "muP (Yang et al. 2022): rates and deviations that are good for the base width are good for this one")
      .alias("--use-mup")
      .on_resume(ResumeRule::kRefused);
  table.add("--mup-base-hidden-size", mup.mup_base_hidden_size, "hidden size of the model that was tuned")
      .minimum(1)
      .maximum(1e6)
      .default_text("none")
      .on_resume(ResumeRule::kRefused);
  table.add("--mup-embedding-mult", mup.mup_embedding_mult, "multiplies embeddings after positions are added")
      .minimum(1e-6)
      .maximum(1e6)
      .alias("--mup-input-mult")
      .on_resume(ResumeRule::kRefused);
  table.add("--mup-output-mult", mup.mup_output_mult, "multiplies the logits")
      .minimum(1e-6)
      .maximum(1e6)
      .default_text("base hidden size / hidden size")
      .on_resume(ResumeRule::kRefused);
  table
      .add("--mup-base-head-dim", mup.mup_base_head_dim,
           "head size B of the model that was tuned: attention scores are divided by head size / sqrt(B)")
      .minimum(1)
      .maximum(1e5)
      .default_text("the head size: wider models have more heads. Megatron-LM's is 1")
      .on_resume(ResumeRule::kRefused);
  table.add_refused("--mup-attn-mult", OptionTable::Takes::kOne, "use --mup-base-head-dim");
  table.add_refused("--mup-attn-scale-power", OptionTable::Takes::kOne,
                    "attention is scaled by sqrt(base head size) / head size; use --mup-base-head-dim");
}

void refuse_mup_rows(OptionTable& table, const std::string& model) {
  const std::string why = "muP is built for GPT, not for a " + model + "; leave it out";
  for (const char* name : {"--mup", "--use-mup"}) table.add_refused(name, OptionTable::Takes::kFlag, why);
  for (const char* name : {"--mup-base-hidden-size", "--mup-embedding-mult", "--mup-input-mult", "--mup-output-mult",
                           "--mup-base-head-dim", "--mup-attn-mult", "--mup-attn-scale-power"})
    table.add_refused(name, OptionTable::Takes::kOne, why);
}

void resolve_mup(const config::Resolving& resolving, const Mup& mup) {
  if (!mup.mup) return;
  if (!mup.mup_base_hidden_size)
    resolving.problems.add(
        "--mup needs --mup-base-hidden-size, the hidden size of the model that was tuned; of that model itself, its "
        "own");
  const spec::OptimizerSettings& settings = resolving.run.optimizer;
  const spec::OptimizerKind& kind = spec::optimizer_kind(settings);
  if (kind.width_rule == spec::WidthRule::kUnknown)
    resolving.problems.add(resolving.origin("--optimizer"),
                           " has no rule for the learning rate of wider models; with --mup use adam, sgd or muon");
  if (kind.leaves_others_to_adamw() && settings.muon_scale_mode != spec::MuonScale::kUnitRmsNorm)
    resolving.problems.add(
        "with --mup the updates of muon's matrices need --muon-scale-mode unit_rms_norm, whose size is right for every "
        "width; give it, or leave --mup out");
}

void find_unused_mup(const Mup& mup, config::UnusedOptions& unused) {
  unused.add_if(!mup.mup,
                {"--mup-base-hidden-size", "--mup-embedding-mult", "--mup-output-mult", "--mup-base-head-dim"},
                "only --mup reads it");
}

}  // namespace espalier::families
