#include "plan/activation_memory.h"

#include <algorithm>

#include "plan/internal/ghost_model.h"
#include "plan/messages.h"

namespace espalier::plan {
namespace {

internal::GhostSizes sizes_of(const RunShape& run, ProductKind products) {
  const spec::ModelSpec& model = run.model;
  const double tp = static_cast<double>(run.grid.tensor);
  internal::GhostSizes sizes;
  sizes.element = element_bytes(run.precision);
  sizes.stream_element = stream_element_bytes(run);
  sizes.tokens = static_cast<double>(run.sequence_length / run.grid.context * run.micro_batch_size);
  sizes.sequence_length = static_cast<double>(run.sequence_length);
  sizes.sequence_parallel = run.sequence_parallel && run.grid.tensor > 1;
  sizes.rows = sizes.sequence_parallel ? sizes.tokens / tp : sizes.tokens;
  sizes.hidden = static_cast<double>(model.hidden_size);
  sizes.tensor_ranks = tp;
  if (model.keeps_positions) sizes.positions = static_cast<double>(run.sequence_length * run.micro_batch_size);
  sizes.vocabulary = static_cast<double>((model.vocabulary.padded_size + run.grid.tensor - 1) / run.grid.tensor);
  sizes.context_parallel = run.grid.context > 1;
  sizes.dropout = model.has_dropout;
  sizes.products = products;
  sizes.z_loss = run.z_loss;
  sizes.rounds_operands = run.fp8 != spec::Fp8::kNone;
  sizes.kept_input_share = run.divides_kept_inputs ? 1 / tp : 1;
  return sizes;
}

}  // namespace

ProductKind products_of(CpuIsa isa, Precision precision) {
  const bool panels = multiplies_fp32(isa);
  switch (precision) {
    case Precision::kFp32: return panels ? ProductKind::kWidePanels : ProductKind::kDirect;
    case Precision::kFp16:
      return isa >= CpuIsa::kAmx ? ProductKind::kDirect : panels ? ProductKind::kWidePanels : ProductKind::kWidened;
    case Precision::kBf16:
      return multiplies_bf16(isa) ? ProductKind::kPacked : panels ? ProductKind::kWidePanels : ProductKind::kWidened;
  }
  return ProductKind::kDirect;
}

ProductKind default_products(Precision precision) {
  return precision == Precision::kBf16 ? ProductKind::kPacked : ProductKind::kDirect;
}

PartActivations part_activations(const RunShape& run, const Partition& partition, int64_t stage, int64_t chunk,
                                 ProductKind products, double layer_weights) {
  internal::GhostSizes sizes = sizes_of(run, products);
  sizes.layer_weights = layer_weights;
  internal::GhostModel ghosts(run.model, sizes);
  spec::ByteCount& count = ghosts.count();
  const DepthRange& part = partition.part(stage, chunk);
  ghosts.forward(part, run.recompute);
  PartActivations result;
  if (part.begin > 0) result.received = passed_on_bytes(run, part.begin - 1);
  if (part.end <= run.model.num_layers() + 1) result.returned = passed_on_bytes(run, part.end - 1);
  result.kept = count.live;
  result.forward_peak = count.peak;
  result.saved = ghosts.saved();
  count.peak = count.live;
  ghosts.backward(run.schedule == ScheduleKind::kZeroBubble);
  result.backward_peak = count.peak;
  result.deferred = count.live;
  return result;
}

}  // namespace espalier::plan
