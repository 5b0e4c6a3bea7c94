#include "models/t5/probe.h"

#include <ATen/ATen.h>

#include "models/t5/model.h"

namespace espalier::models {
namespace {

constexpr int64_t kDecoderTokens = 11;  // so that a length of one sequence taken for the other's shows

int64_t most_positions(const families::T5Config& config) {
  return config.positions == families::T5Positions::kLearned ? config.max_position_embeddings : INT64_MAX;
}

NamedTensors t5_inputs(const config::RunConfig& run) {
  const families::T5Config config = families::t5_config(run);
  return {{"ids", probe_ids(most_positions(config), config.vocab_size)},
          {"decoder_ids", probe_ids(std::min(kDecoderTokens, most_positions(config)), config.vocab_size)}};
}

NamedTensors t5_outputs(const nn::LayerBuilder& builder, const config::RunConfig& run, const NamedTensors& inputs) {
  const families::T5Config config = families::t5_config(run);
  const T5Model model(builder, config, {0, config.last_depth() + 1}, {});
  const at::Tensor &ids = inputs.at("ids"), &decoder_ids = inputs.at("decoder_ids");
  const Encoded encoded = model.encode(ids, std::vector<int64_t>(static_cast<size_t>(ids.size(0)), ids.size(1)));
  const at::Tensor positions = at::arange(decoder_ids.size(1), at::kLong).expand_as(decoder_ids).contiguous();
  const nn::ForwardContext context{.attention = model.attention_context()};
  const at::Tensor hidden = model.hidden_states(decoder_ids, positions, context, &encoded);
  return {{"logits", model.logits(hidden).transpose(0, 1)}};
}

std::vector<std::string> parts_of_t5_not_reached(const config::RunConfig&, int64_t) { return {}; }

}  // namespace

const Probe kT5Probe{.inputs = t5_inputs, .outputs = t5_outputs, .not_reached = parts_of_t5_not_reached};

}  // namespace espalier::models
