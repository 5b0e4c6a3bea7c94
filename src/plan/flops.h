// What one sample costs, counted two ways. A family says what each depth costs (spec::Depth).
//
// Model FLOPs: what the mathematics needs. Two per multiply-add of the matrices that every token passes (linear layers,
// the output layer over the padded vocabulary, attention over the positions it may see), three times for forward and
// backward. Recompute and other work of an implementation do not count: the figure compares machines and programs.
//
// Hardware FLOPs: what BLOOM's log line calls TFLOPs: 24 (3 + recomputed share) s l h^2 (1 + s / 6h + V / 16lh), four
// passes instead of three with full recompute. Attention counts as if it were not causal, and an MLP as 4h wide.
#pragma once

#include <cstdint>

#include "plan/partition.h"
#include "plan/run_shape.h"

namespace espalier::plan {

// Of one sample, forward and backward.
double model_flops(const spec::ModelSpec& model);
double hardware_flops(const spec::ModelSpec& model, int64_t num_recomputed_layers);

// Layers of the whole model whose forward pass runs again in the backward pass.
int64_t num_recomputed_layers(const Recompute& recompute, const Partition& partition);

}  // namespace espalier::plan
