#include "plan/activation_memory.h"

#include <algorithm>

#include "plan/internal/ghost_model.h"

namespace espalier::plan {
namespace {

internal::GhostSizes sizes_of(const RunConfig& config, ProductKind products) {
  const spec::GptConfig& model = config.model;
  const spec::GridShape& grid = config.grid;
  const double tp = static_cast<double>(grid.tensor);
  internal::GhostSizes sizes;
  sizes.element = config.training.precision == Precision::kFp32 ? 4 : 2;
  sizes.tokens = static_cast<double>(config.data.sequence_length / grid.context * config.training.micro_batch_size);
  sizes.sequence_parallel = config.parallel.sequence_parallel && grid.tensor > 1;
  sizes.rows = sizes.sequence_parallel ? sizes.tokens / tp : sizes.tokens;
  sizes.hidden = static_cast<double>(model.hidden_size);
  sizes.projection = static_cast<double>(model.num_attention_heads * model.kv_channels) / tp;
  sizes.qkv = static_cast<double>(model.num_groups() * model.group_channels()) / tp;
  sizes.heads = static_cast<double>(model.num_attention_heads) / tp;
  sizes.normed_heads = static_cast<double>(model.num_attention_heads + model.num_groups()) / tp;
  sizes.ffn = static_cast<double>(model.ffn_hidden_size) / tp;
  sizes.inner = spec::is_gated(model.activation) ? 2 * sizes.ffn : sizes.ffn;
  if (model.position_embedding == spec::PositionEmbedding::kRotary)
    sizes.positions = static_cast<double>(config.data.sequence_length * config.training.micro_batch_size);
  sizes.rms_norm = model.normalization == spec::Normalization::kRmsNorm;
  sizes.head_norm = model.qk_layernorm;
  sizes.vocabulary = static_cast<double>((model.padded_vocab_size + grid.tensor - 1) / grid.tensor);
  sizes.context_parallel = grid.context > 1;
  sizes.dropout = model.hidden_dropout > 0;
  sizes.products = products;
  sizes.kept_input_share = config.parallel.distribute_saved_activations ? 1 / tp : 1;
  return sizes;
}

}  // namespace

ProductKind default_products(Precision precision) {
  return precision == Precision::kBf16 ? ProductKind::kPacked : ProductKind::kDirect;
}

PartActivations part_activations(const RunConfig& config, const Partition& partition, int64_t stage, int64_t chunk,
                                 ProductKind products, double layer_weights) {
  const spec::GptConfig& model = config.model;
  const DepthRange& depths = partition.part(stage, chunk);
  internal::GhostSizes sizes = sizes_of(config, products);
  sizes.layer_weights = layer_weights;
  internal::GhostModel ghosts(sizes);
  internal::ByteCount& count = ghosts.count();
  ghosts.forward({.embeds = depths.contains(0),
                  .has_positions = model.position_embedding == spec::PositionEmbedding::kLearned,
                  .has_norm = model.embed_layernorm,
                  .recompute = config.training.recompute,
                  .num_layers = partition.layers(stage, chunk).count(),
                  .has_output = depths.contains(partition.num_layers + 1)});
  PartActivations result;
  result.kept = count.live;
  result.forward_peak = count.peak;
  result.saved = ghosts.saved();
  count.peak = count.live;
  ghosts.backward(config.parallel.pipeline_schedule == ScheduleKind::kZeroBubble);
  result.backward_peak = count.peak;
  result.deferred = count.live;
  return result;
}

}  // namespace espalier::plan
