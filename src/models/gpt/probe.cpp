#include "models/gpt/probe.h"

#include <ATen/ATen.h>

#include "base/format.h"
#include "models/gpt/model.h"

namespace espalier::models {
namespace {

NamedTensors gpt_inputs(const config::RunConfig& run) {
  const families::GptConfig config = families::gpt_config(run);
  return {{"ids", probe_ids(config.max_position_embeddings, config.vocab_size)}};
}

NamedTensors gpt_outputs(const nn::LayerBuilder& builder, const config::RunConfig& run, const NamedTensors& inputs) {
  const GptModel model(builder, families::gpt_config(run), GptModel::Options{});
  const at::Tensor& ids = inputs.at("ids");
  const at::Tensor positions = at::arange(ids.size(1), at::kLong).expand_as(ids).contiguous();
  const nn::ForwardContext context{.attention = model.attention_context()};
  return {{"logits", model.logits(model.hidden_states(ids, positions, context)).transpose(0, 1)}};
}

std::vector<std::string> parts_of_gpt_not_reached(const config::RunConfig& run, int64_t length) {
  const families::GptConfig config = families::gpt_config(run);
  std::vector<std::string> parts;
  if (config.window_size >= length)
    parts.push_back(concat("its window of ", format_count(config.window_size), " tokens"));
  const spec::RopeScaling& scaling = config.rope_scaling;
  if (scaling.kind == spec::RopeScaling::Kind::kLongRope && scaling.original_max_position_embeddings >= length)
    parts.push_back(concat("the factors of positions beyond ", format_count(scaling.original_max_position_embeddings)));
  return parts;
}

}  // namespace

const Probe kGptProbe{.inputs = gpt_inputs, .outputs = gpt_outputs, .not_reached = parts_of_gpt_not_reached};

}  // namespace espalier::models
