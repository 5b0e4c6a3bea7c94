// What one sample costs, counted two ways; and the number of parameters.
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
#include "plan/run_config.h"

namespace espalier::plan {

// Of one sample of that many tokens, forward and backward.
double model_flops(const spec::GptConfig& model, int64_t sequence_length);
double hardware_flops(const spec::GptConfig& model, int64_t sequence_length, int64_t num_recomputed_layers);

// Layers of the whole model whose forward pass runs again in the backward pass. "block" takes the first N of every part
// of the model, that is of every virtual stage, as Megatron does.
int64_t num_recomputed_layers(const Recompute& recompute, const Partition& partition);
int64_t num_recomputed_layers(const Recompute& recompute, int64_t num_layers_of_part);

// Of the forward pass of one sample: the products of one transformer layer, and of the output layer.
double layer_forward_flops(const spec::GptConfig& model, int64_t sequence_length);
double output_forward_flops(const spec::GptConfig& model, int64_t sequence_length);

// Each parameter once; `without_embeddings` leaves out the tables of words and positions (an untied output layer
// counts).
int64_t num_parameters(const spec::GptConfig& model);
int64_t num_parameters_without_embeddings(const spec::GptConfig& model);

}  // namespace espalier::plan
