#include "plan/flops.h"

#include <algorithm>

namespace espalier::plan {

double layer_forward_flops(const spec::GptConfig& model, int64_t sequence_length) {
  const double tokens = static_cast<double>(sequence_length), hidden = static_cast<double>(model.hidden_size);
  const double projection = static_cast<double>(model.num_attention_heads * model.kv_channels);
  const double qkv = static_cast<double>(model.num_groups() * model.group_channels());
  const double ffn = static_cast<double>(model.ffn_hidden_size);
  // Multiply-adds of one token: query, key, value and output projections; the two layers of the MLP, or three if gated.
  const double linear = hidden * (qkv + projection) + (spec::is_gated(model.activation) ? 3 : 2) * hidden * ffn;
  // Pairs of query and visible key of one sample; each pair costs a product with the key and one with the value. The
  // first `window` queries see all before them, the others as many keys as the first ones' last.
  const double window = model.window_size == 0 ? tokens : std::min(tokens, static_cast<double>(model.window_size));
  const double pairs = window * (window + 1) / 2 + (tokens - window) * window;
  return 2 * (tokens * linear + 2 * pairs * projection);
}

double output_forward_flops(const spec::GptConfig& model, int64_t sequence_length) {
  return 2 * static_cast<double>(sequence_length) * static_cast<double>(model.hidden_size) *
         static_cast<double>(model.padded_vocab_size);
}

double model_flops(const spec::GptConfig& model, int64_t sequence_length) {
  return 3 * (static_cast<double>(model.num_layers) * layer_forward_flops(model, sequence_length) +
              output_forward_flops(model, sequence_length));
}

double hardware_flops(const spec::GptConfig& model, int64_t sequence_length, int64_t num_recomputed_layers) {
  const double s = static_cast<double>(sequence_length), h = static_cast<double>(model.hidden_size);
  const double l = static_cast<double>(model.num_layers), v = static_cast<double>(model.padded_vocab_size);
  const double recomputed_share = static_cast<double>(num_recomputed_layers) / l;
  return 24 * (3 + recomputed_share) * s * l * h * h * (1 + s / (6 * h) + v / (16 * l * h));
}

int64_t num_recomputed_layers(const Recompute& recompute, int64_t num_layers_of_part) {
  if (recompute.kind == Recompute::Kind::kUniform) return num_layers_of_part;
  return recompute.kind == Recompute::Kind::kBlock ? std::min(recompute.num_layers, num_layers_of_part) : 0;
}

int64_t num_recomputed_layers(const Recompute& recompute, const Partition& partition) {
  int64_t count = 0;
  for (int64_t stage = 0; stage < partition.num_stages; ++stage)
    for (int64_t chunk = 0; chunk < partition.num_chunks; ++chunk)
      count += num_recomputed_layers(recompute, partition.layers(stage, chunk).count());
  return count;
}

int64_t num_parameters(const spec::GptConfig& model) { return spec::num_elements(spec::gpt_params(model)); }

int64_t num_parameters_without_embeddings(const spec::GptConfig& model) {
  int64_t count = 0;
  for (const spec::ParamSpec& param : spec::gpt_params(model))
    if (param.name != "word_embeddings.weight" && param.name != "position_embeddings.weight")
      count += param.num_elements();
  return count;
}

}  // namespace espalier::plan
