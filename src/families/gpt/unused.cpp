// Options of a GPT that others leave without effect.
#include "base/format.h"
#include "config/unused_options.h"
#include "families/gpt/internal/gpt.h"

namespace espalier::families::internal {
namespace {

void find_unused_activations(const GptSettings& settings, config::UnusedOptions& unused) {
  const GptOptions& options = settings.options;
  unused.add_if(!options.activation.empty(), {"--no-bias-gelu-fusion", "--openai-gelu"},
                concat("the activation is ", options.activation));
  unused.add_if(options.activation.empty() && options.gelu_is_fused, {"--openai-gelu"},
                "gelu has the tanh form unless --no-bias-gelu-fusion is given");
  unused.add_if(settings.shape.add_bias_linear, {"--add-qkv-bias"},
                "without --disable-bias-linear all linear layers have a bias");
}

void find_unused_scaling(const GptSettings& settings, config::UnusedOptions& unused) {
  using Kind = spec::RopeScaling::Kind;
  const Kind kind = settings.shape.rope_scaling.kind;
  const auto only = [](const char* kinds) { return concat("only --rope-scaling-type ", kinds, " reads it"); };
  unused.add_if(kind == Kind::kNone, {"--rope-scaling-factor"}, only("linear, llama3, yarn or longrope"));
  unused.add_if(kind == Kind::kNone || kind == Kind::kLinear, {"--rope-scaling-original-max-position-embeddings"},
                only("llama3, yarn or longrope"));
  unused.add_if(kind != Kind::kLlama3, {"--rope-scaling-low-freq-factor", "--rope-scaling-high-freq-factor"},
                only("llama3"));
  unused.add_if(kind != Kind::kYarn, {"--rope-scaling-beta-fast", "--rope-scaling-beta-slow"}, only("yarn"));
  unused.add_if(kind != Kind::kYarn && kind != Kind::kLongRope, {"--rope-scaling-attention-factor"},
                only("yarn or longrope"));
  unused.add_if(kind != Kind::kLongRope, {"--rope-scaling-short-factors", "--rope-scaling-long-factors"},
                only("longrope"));
}

}  // namespace

void find_unused_gpt(const config::RunConfig& run, const GptSettings& settings, config::UnusedOptions& unused) {
  find_unused_activations(settings, unused);
  find_unused_scaling(settings, unused);
  unused.add_if(run.training.precision == plan::Precision::kFp32, {"--fp32-residual-connection"},
                "without --bf16 and --fp16 everything is fp32");
  find_unused_mup(settings.shape.mup, unused);
  find_unused_by_objective(settings, unused);
}

}  // namespace espalier::families::internal
