#include <algorithm>

#include "families/retro/config.h"

namespace espalier::families {

using spec::Init;
using spec::Placement;

bool RetroConfig::retrieves_in(int64_t layer) const {
  const int64_t first = first_retrieval_layer();
  return retrieves && layer >= first && (layer - first) % 3 == 0;
}

int64_t RetroConfig::num_retrieval_layers() const {
  int64_t count = 0;
  for (int64_t layer = 0; layer < gpt.num_layers; ++layer) count += retrieves_in(layer) ? 1 : 0;
  return count;
}

TransformerShape RetroConfig::layers() const { return gpt.layers(); }

TransformerShape RetroConfig::retrieval_layers() const {
  TransformerShape shape = layers();
  shape.cross_attention = true;
  return shape;
}

// Its layers are numbered after the GPT's: dropout goes by that number. Only the first attends to the chunk.
TransformerShape RetroConfig::encoder() const {
  TransformerShape shape = layers();
  shape.prefix = layers().layer_name(first_retrieval_layer()) + ".retriever.";
  shape.depth = layers().depth_of(first_retrieval_layer());
  shape.outer_layers = gpt.num_layers;
  shape.first_layer = gpt.num_layers;
  shape.num_layers = encoder_layers;
  return shape;
}

std::vector<spec::ParamSpec> retro_params(const RetroConfig& config) {
  std::vector<spec::ParamSpec> all = gpt_params(config.gpt);
  if (!config.retrieves) return all;
  ParamList params;
  TransformerShape encoder = config.encoder();
  for (int64_t layer = 0; layer < config.gpt.num_layers; ++layer) {
    params.add_layer(config.retrieves_in(layer) ? config.retrieval_layers() : config.layers(), layer);
    if (layer != config.first_retrieval_layer()) continue;
    for (int64_t below = 0; below < encoder.num_layers; ++below) {
      encoder.cross_attention = below == 0;
      params.add_layer(encoder, below);
    }
  }
  // The GPT's parameters but for its layers.
  const auto is_of_layers = [](const spec::ParamSpec& spec) { return spec.name.starts_with("layers."); };
  const auto first = std::find_if(all.begin(), all.end(), is_of_layers);
  const auto last = std::find_if_not(first, all.end(), is_of_layers);
  const std::vector<spec::ParamSpec> layers = params.take();
  all.insert(all.erase(first, last), layers.begin(), layers.end());
  // The words and positions of neighbours are looked up in the layer that owns the encoder.
  for (spec::ParamSpec& param : all)
    if (param.depth == 0) param.other_depths.insert(param.other_depths.begin(), *encoder.depth);
  return all;
}

}  // namespace espalier::families
