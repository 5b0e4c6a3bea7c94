// What a micro-batch keeps for its backward on one rank, and what is needed in addition while it passes. Pure
// functions.
//
// The list follows the calls of tensor::save_for_backward in kernels/ and the life of every tensor between them, layer
// by layer, forward and backward; a test compares it with what the ops really keep. Sizes are those of the CPU kernels;
// what products keep on the stack or in a library is not counted.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/cpu_isa.h"
#include "plan/partition.h"
#include "plan/run_shape.h"

namespace espalier::plan {

// How matrix products run, which decides what they need besides their operands.
enum class ProductKind {
  kDirect,      // operands as they are (fp32 and fp16 where the library takes them)
  kWidePanels,  // fp32 panels, which short types are converted to: one operand is packed before each product
  kPacked,      // bf16 instructions: weights are packed before each product
  kWidened,     // short types by the library's fp32 products (CPUs without instructions for them)
};
// On a CPU that computes with `isa`.
ProductKind products_of(CpuIsa isa, Precision precision);
// Where the machine is not known: one with bf16 instructions.
ProductKind default_products(Precision precision);

// One tensor that an op keeps. `again`: another op has it already, or it is one of them.
struct SavedBytes {
  std::string op, name;
  double bytes = 0;
  bool again = false;
};

// Of one part of the model (a chunk of a stage) and one micro-batch, in bytes of one rank.
struct PartActivations {
  double kept = 0;      // between forward and backward
  double deferred = 0;  // between backward and weight gradient, in a schedule that splits them
  // The most at once above what there was before, the forward's own results included.
  double forward_peak = 0;
  // The most at once during the backward above what there was before (`kept` included in that).
  double backward_peak = 0;
  // Messages: what comes from the part before, whose gradient goes back, and the gradient that comes from the part
  // after.
  double received = 0, returned = 0;
  std::vector<SavedBytes> saved;  // of the forward pass, in order
};

// `stage` and `chunk` of a run with a known vocabulary. `layer_weights`: bytes of weights that exist while
// a layer runs and not between (ZeRO 3); they are in the peaks.
PartActivations part_activations(const RunShape& run, const Partition& partition, int64_t stage, int64_t chunk,
                                 ProductKind products, double layer_weights = 0);

}  // namespace espalier::plan
