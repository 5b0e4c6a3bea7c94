// Cross-checks of the optimizer with the layout.
#include <algorithm>

#include "config/internal/resolver.h"
#include "spec/optimizer.h"
#include "spec/state_storage.h"
#include "spec/stored_state.h"

namespace espalier::config {
namespace {

// Tensor ranks that cut rows of no parameter within a block of moments, near `asked`.
int64_t tensor_size_for(const spec::OptimizerKind& kind, const std::vector<spec::ParamSpec>& params, int64_t asked) {
  while (asked > 1 && !spec::cut_moment_blocks(kind, params, asked).empty()) asked /= 2;
  return asked;
}

}  // namespace

namespace internal {

void Resolver::resolve_optimizer() {
  const spec::OptimizerSettings& optimizer = config_.optimizer;
  if (optimizer.optimizer == spec::OptimizerType::kAdam8bit)
    for (const char* name : {spec::kFirstMomentOption, spec::kSecondMomentOption})
      if (is_said(name) || is_of_command_line(name))
        problems_.add("--optimizer adam8bit keeps both moments in fp8, and ", origin(name),
                      ": use --optimizer adam with --exp-avg-dtype and --exp-avg-sq-dtype");
  const spec::OptimizerKind& kind = spec::optimizer_kind(optimizer);
  if (spec::clips_logits(optimizer)) check_qk_clip(kind);
  if (kind.estimates_curvature && !config_.family->predicts_tokens)
    problems_.add(origin("--optimizer"), " estimates curvature from predicted tokens, and the loss of a ",
                  config_.family->display, " is not of those alone; use --optimizer adam or lion");
  if (!has_model()) return;
  RunConfig run = config_;
  set_vocabulary(run, run.tokenizer.pad_vocab_size_to.value_or(1));
  const std::vector<spec::ParamSpec> params = model_spec(run).params;
  if (spec::clips_logits(optimizer)) check_clipped_layers(params);
  const std::vector<std::string> cut = spec::cut_moment_blocks(kind, params, run.grid.tensor);
  if (cut.empty()) return;
  problems_.add(origin("--tensor-model-parallel-size"), " cuts the rows of ", cut.front(),
                cut.size() > 1 ? " and others" : "", " within a block of ", spec::kMomentBlock,
                " elements whose moments share a scale in fp8; use a tensor-parallel size of ",
                tensor_size_for(kind, params, run.grid.tensor), ", or moments in bf16");
}

void Resolver::check_qk_clip(const spec::OptimizerKind& kind) {
  if (config_.optimizer.qk_clip_threshold <= 0)
    problems_.add(origin("--qk-clip-threshold"), " is not a bound for logits; use 100, or another number above 0");
  if (kind.averages)
    problems_.add("--qk-clip: --optimizer ", kind.name(),
                  " keeps its weights at two points, but logits belong to one; use ",
                  "an optimizer that does not average, or leave --qk-clip out");
}

void Resolver::check_clipped_layers(const std::vector<spec::ParamSpec>& params) {
  const auto has = [&](const char* ending) {
    return std::any_of(params.begin(), params.end(),
                       [&](const spec::ParamSpec& param) { return param.name.ends_with(ending); });
  };
  if (has("query_norm.weight"))
    problems_.add("--qk-clip and --qk-layernorm exclude each other: a norm undoes what clips the weights before it, ",
                  "and bounds logits itself; leave --qk-clip out");
  if (has("inter_attention.query.weight"))
    problems_.add("--qk-clip: the attention of a decoder to an encoder is not clipped; leave it out");
}

}  // namespace internal
}  // namespace espalier::config
