#include "plan/messages.h"

#include <algorithm>

#include "plan/stage_params.h"
#include "spec/flat_layout.h"
#include "spec/shard.h"

namespace espalier::plan {
namespace {

// Share of a message that leaves a rank of n.
double ring(int64_t n) { return static_cast<double>(n - 1) / static_cast<double>(n); }

struct Sizes {
  double hidden = 0;  // bytes of [s/cp, b, h]
  double row = 0;     // bytes of [s/cp, b, heads * head size / tp]
  double hidden_to_stage = 0;
};

Sizes sizes_of(const RunConfig& config) {
  const spec::GptConfig& model = config.model;
  const double element = config.training.precision == Precision::kFp32 ? 4 : 2;
  const double tokens =
      static_cast<double>(config.data.sequence_length / config.grid.context * config.training.micro_batch_size);
  Sizes sizes;
  sizes.hidden = tokens * static_cast<double>(model.hidden_size) * element;
  sizes.row =
      tokens * static_cast<double>(model.num_attention_heads * model.kv_channels / config.grid.tensor) * element;
  sizes.hidden_to_stage =
      config.parallel.sequence_parallel ? sizes.hidden / static_cast<double>(config.grid.tensor) : sizes.hidden;
  return sizes;
}

// Layers that run forward a second time.
double num_recomputed(const Recompute& recompute, double layers) {
  if (recompute.kind == Recompute::Kind::kUniform) return layers;
  return recompute.kind == Recompute::Kind::kBlock ? std::min(static_cast<double>(recompute.num_layers), layers) : 0;
}

// Of one micro-batch through one part.
void add_part(const RunConfig& config, const Partition& partition, int64_t stage, int64_t chunk, StageMessages& sent) {
  const Sizes sizes = sizes_of(config);
  const spec::GridShape& grid = config.grid;
  const DepthRange& depths = partition.part(stage, chunk);
  const bool first = depths.contains(0), last = depths.contains(partition.num_layers + 1);
  const double layers = static_cast<double>(partition.layers(stage, chunk).count());
  const double forwards = layers + num_recomputed(config.training.recompute, layers);
  // Two all-reduces each way and layer; with sequence parallelism two gathers and two scatters, which send the same.
  const double all_reduce = 2 * sizes.hidden * ring(grid.tensor);
  sent.tensor += 2 * all_reduce * (forwards + layers);
  // Embedding forward, output backward: an all-reduce, or its two halves on the two ways.
  sent.tensor += all_reduce * (first + last);
  sent.context += (3 + 1) * sizes.row * ring(grid.context) * (forwards + layers);
  if (!last) sent.pipeline += sizes.hidden_to_stage;
  if (!first) sent.pipeline += sizes.hidden_to_stage;
}

double bytes_on_wire(const RunConfig& config) {
  return config.parallel.grad_reduce_type == GradReduceType::kBf16 ? 2 : 4;
}

// How often a section's gradients leave in a step. Those that come and go leave when another section's come, and the
// tied embedding's stay from the end of one micro-batch to the beginning of the next, at the output.
double num_sends(const spec::FlatSection& section, const spec::Sharing& sharing, double micro_batches) {
  if (!spec::gradients_come_and_go(section, sharing)) return 1;
  return section.tied ? micro_batches + 1 : micro_batches;
}

// How often a section's values are gathered in a step: those that stay once, a layer's that come and go for each of its
// runs. What is gathered ahead in vain, because a recomputed range turns round, is not counted.
double num_gathers(const spec::FlatSection& section, const spec::Sharing& sharing, const Recompute& recompute,
                   double micro_batches) {
  if (!spec::values_come_and_go(section, sharing)) return sharing.stage >= spec::ZeroStage::kOptimizer ? 1 : 0;
  // Of the layers up to this one; there is one stage, and its first layer has depth 1.
  const bool again =
      num_recomputed(recompute, static_cast<double>(section.depth)) >= static_cast<double>(section.depth);
  return micro_batches * (again ? 3 : 2);
}

// Gradients and values between the ranks of data and context.
double data_bytes(const RunConfig& config, const std::vector<spec::ParamSpec>& specs, double micro_batches) {
  const int64_t sharers = config.grid.data * config.grid.context;
  const spec::Sharing sharing{static_cast<spec::ZeroStage>(config.parallel.zero_stage), sharers};
  const double wire = bytes_on_wire(config), element = config.training.precision == Precision::kFp32 ? 4 : 2;
  // A reduce-scatter where a rank keeps its part, else an all-reduce.
  const double ways = sharing.stage >= spec::ZeroStage::kOptimizer ? 1 : 2;
  const spec::FlatLayout layout = spec::flat_layout(specs, {config.grid.tensor, 0}, sharers);
  double bytes = 0;
  for (const spec::FlatSection& section : layout.sections) {
    double count = 0;
    for (const size_t param : section.params) count += static_cast<double>(layout.counts[param]);
    bytes += count * (ways * wire * num_sends(section, sharing, micro_batches) +
                      element * num_gathers(section, sharing, config.training.recompute, micro_batches));
  }
  return bytes * ring(sharers);
}

// Once a step, between tensor ranks and between the first and the last stage.
void add_gradients(const RunConfig& config, const std::vector<spec::ParamSpec>& specs, bool tied, StageMessages& sent) {
  const spec::GridShape& grid = config.grid;
  const int64_t sharers = grid.data * grid.context;
  const double wire = bytes_on_wire(config);
  double partial = 0, tied_elements = 0;
  for (const spec::ParamSpec& spec : specs) {
    const double count = static_cast<double>(spec::num_local_elements(spec, {grid.tensor, 0}));
    const bool replicated = spec.tensor_placement.kind == spec::Placement::Kind::kReplicated;
    if (replicated && (config.parallel.sequence_parallel || spec.use_is_split)) partial += count;
    if (spec.tied_to_output) tied_elements += count;
  }
  const double owned = config.parallel.zero_stage >= 1 ? 1 / static_cast<double>(sharers) : 1;
  sent.tensor += 2 * partial * wire * ring(grid.tensor) * owned;
  if (tied) sent.tied += 2 * tied_elements * wire * ring(2) * owned;
}

}  // namespace

std::vector<StageMessages> plan_messages(const RunConfig& config, const Partition& partition,
                                         int64_t num_micro_batches) {
  const double micro_batches = static_cast<double>(num_micro_batches);
  std::vector<StageMessages> stages;
  for (int64_t stage = 0; stage < partition.num_stages; ++stage) {
    StageMessages sent;
    for (int64_t chunk = 0; chunk < partition.num_chunks; ++chunk) add_part(config, partition, stage, chunk, sent);
    sent.tensor *= micro_batches;
    sent.context *= micro_batches;
    sent.pipeline *= micro_batches;
    const bool at_an_end = partition.stage_of(0) == stage || partition.stage_of(partition.num_layers + 1) == stage;
    const std::vector<spec::ParamSpec> specs = stage_params(spec::gpt_params(config.model), partition, stage);
    sent.data = data_bytes(config, specs, micro_batches);
    add_gradients(config, specs, config.model.tie_output && partition.num_stages > 1 && at_an_end, sent);
    stages.push_back(sent);
  }
  return stages;
}

}  // namespace espalier::plan
