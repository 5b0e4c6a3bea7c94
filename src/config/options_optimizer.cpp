// --optimizer and the rows that only some optimizers read.
#include "config/internal/rows.h"
#include "spec/optimizer.h"

namespace espalier::config::internal {
namespace {

constexpr const char* kOtherLamb =
    "its bounds of the ratio of norms are not built in; use --optimizer lamb, which has none";
constexpr const char* kNoPreconditioner =
    "no preconditioner is kept; use --optimizer muon, which makes one of each step's momentum";
constexpr const char* kNoProjection =
    "gradients are not projected; use --optimizer adam8bit, or --zero-stage 1 to divide the state of adam";
constexpr const char* kPlainMuon = "only Muon itself is built in; use --optimizer muon";

struct Refusal {
  const char* name;
  const char* use_instead;
};
constexpr Refusal kRefusals[] = {
    {"ds.fusedlamb", kOtherLamb},
    {"ds.onebitlamb", "gradients are not compressed to a bit; use --optimizer lamb"},
    {"ipex.fusedlamb", "LAMB is always fused; use --optimizer lamb"},
    {"ipex.lamb", "use --optimizer lamb"},
    {"galoreadamw", kNoProjection},
    {"galoreadamw8bit", kNoProjection},
    {"galoreadamw8bitperlayer", kNoProjection},
    {"dshampooadamw", kNoPreconditioner},
    {"soap", kNoPreconditioner},
    {"adaptive_muon", kPlainMuon},
};

void add_sophiag(OptionTable& table, spec::OptimizerSettings& optimizer) {
  table.add("--sophiag-beta1", optimizer.sophiag_beta1, "decay of Sophia-G's momentum").minimum(0).maximum(1);
  table.add("--sophiag-beta2", optimizer.sophiag_beta2, "decay of its estimate of the curvature").minimum(0).maximum(1);
  table
      .add("--sophiag-rho", optimizer.sophiag_rho,
           "what it multiplies the curvature by: with a larger one fewer elements of its steps are cut to the learning "
           "rate")
      .minimum(1e-12);
  table
      .add("--sophiag-update-interval", optimizer.sophiag_update_interval,
           "updates from one estimate of its curvature, by a forward and a backward pass more, to the next")
      .minimum(1)
      .maximum(1e9);
}

void add_muon(OptionTable& table, spec::OptimizerSettings& optimizer) {
  table.add("--muon-momentum", optimizer.muon_momentum, "decay of Muon's momentum").minimum(0).maximum(1);
  table.add("--muon-nesterov", optimizer.muon_nesterov, "Nesterov's momentum in Muon");
  table.add_choice("--muon-scale-mode", optimizer.muon_scale_mode,
                   {{"spectral", spec::MuonScale::kSpectral},
                    {"shape_scaling", spec::MuonScale::kShapeScaling},
                    {"unit_rms_norm", spec::MuonScale::kUnitRmsNorm}},
                   "what Muon multiplies the orthogonal matrix by, of r rows and c columns: spectral: "
                   "sqrt(max(r, c)), shape_scaling: sqrt(max(1, r / c)), unit_rms_norm: sqrt(r / c)");
  table
      .add("--muon-extra-scale-factor", optimizer.muon_extra_scale_factor,
           "and also by this; 0.2 with spectral makes steps as large as AdamW's, so that its learning rates carry over")
      .minimum(0);
  table.add_choice("--muon-coefficient-type", optimizer.muon_coefficient_type,
                   {{"quintic", spec::MuonCoefficients::kQuintic}, {"simple", spec::MuonCoefficients::kSimple}},
                   "polynomials of Muon's Newton-Schulz iterations");
  table.add("--muon-num-ns-steps", optimizer.muon_num_ns_steps, "Newton-Schulz iterations of Muon")
      .alias("--muon-ns-steps")
      .minimum(1)
      .maximum(100);
}

void add_moment_types(OptionTable& table, spec::OptimizerSettings& optimizer) {
  const auto add = [&](const char* name, spec::StateType& type, const std::string& help) {
    table
        .add_choice(
            name, type,
            {{"fp32", spec::StateType::kFp32}, {"bf16", spec::StateType::kBf16}, {"fp8", spec::StateType::kFp8}},
            help + ": rounded at random, fp8 with a scale for each 32 elements; docs/optimizers.md says what it costs")
        .refuse_value("fp16", "it has too few exponents for moments of gradients; use bf16");
  };
  add("--exp-avg-dtype", optimizer.exp_avg_dtype, "type of first moments, Muon's and Lion's momentum too");
  add("--exp-avg-sq-dtype", optimizer.exp_avg_sq_dtype, "type of second moments");
}

void add_qk_clip(OptionTable& table, spec::OptimizerSettings& optimizer) {
  table.add("--qk-clip", optimizer.qk_clip,
            "after each update make the queries and keys of heads shorter whose attention logits were above the "
            "threshold in the step; --optimizer muonclip does so too");
  table.add("--qk-clip-threshold", optimizer.qk_clip_threshold, "largest logit that --qk-clip leaves alone")
      .alias("--muonclip-t");
  table
      .add("--qk-clip-alpha", optimizer.qk_clip_alpha,
           "share of --qk-clip's factor, as an exponent, that queries take; keys take the rest")
      .alias("--muonclip-alpha")
      .minimum(0)
      .maximum(1);
}

}  // namespace

void add_optimizer(OptionTable& table, spec::OptimizerSettings& optimizer) {
  table.add("--adam-beta1", optimizer.adam_beta1, "decay of the first moment").minimum(0).maximum(1);
  table.add("--adam-beta2", optimizer.adam_beta2, "decay of the second moment").minimum(0).maximum(1);
  table.add("--adam-eps", optimizer.adam_eps, "added to the root of the second moment").minimum(0);
  table.add("--sgd-momentum", optimizer.sgd_momentum, "decay of SGD's momentum; 0: none is kept").minimum(0).maximum(1);
  table.add("--lion-beta1", optimizer.lion_beta1, "share of Lion's momentum in the direction whose sign is taken")
      .minimum(0)
      .maximum(1);
  table.add("--lion-beta2", optimizer.lion_beta2, "decay of Lion's momentum").minimum(0).maximum(1);
  add_sophiag(table, optimizer);
  add_muon(table, optimizer);
  add_moment_types(table, optimizer);
  add_qk_clip(table, optimizer);
  std::vector<std::pair<std::string, spec::OptimizerType>> names;
  for (const spec::OptimizerKind& kind : spec::optimizer_kinds()) {
    if (kind.is_variant) continue;
    for (const char* spelling : kind.spellings) names.emplace_back(spelling, kind.type);
  }
  names.emplace_back("adam8bit", spec::OptimizerType::kAdam8bit);
  names.emplace_back("muonclip", spec::OptimizerType::kMuonClip);
  Option& row = table.add_choice("--optimizer", optimizer.optimizer, names,
                                 "adam: AdamW; the others are described, and compared, in docs/optimizers.md");
  table
      .add("--ema", optimizer.ema,
           "keep an exponential moving average of the fp32 weights, which forgets by this factor at every step: 0.999; "
           "see --eval-ema")
      .value_name("DECAY")
      .minimum(0)
      .maximum(1)
      .default_text("none is kept");
  for (const Refusal& refusal : kRefusals) row.refuse_value(refusal.name, refusal.use_instead);
}

}  // namespace espalier::config::internal
