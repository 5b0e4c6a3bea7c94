// What decides the memory, the messages and the time of a run: all that plans are made from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/recompute.h"
#include "plan/schedule.h"
#include "spec/fp8.h"
#include "spec/grid.h"
#include "spec/model_spec.h"
#include "spec/optimizer_settings.h"

namespace espalier::plan {

enum class Precision { kFp32, kBf16, kFp16 };
enum class GradReduceType { kFp32, kBf16 };

// "bf16"
std::string to_string(Precision precision);
// "e4m3", "hybrid"
std::string to_string(spec::Fp8 fp8);
// Bytes of an element of weights and activations.
double element_bytes(Precision precision);

struct RunShape {
  spec::ModelSpec model;
  spec::GridShape grid;
  Precision precision = Precision::kFp32;
  spec::Fp8 fp8 = spec::Fp8::kNone;  // of the linear layers of transformer layers
  Recompute recompute;
  ScheduleKind schedule = ScheduleKind::k1F1B;
  int64_t num_chunks = 1;
  std::string partition_method;  // make_partition()
  bool sequence_parallel = false;
  bool divides_kept_inputs = false;  // of recomputed layers, over tensor ranks
  int64_t zero_stage = 0;
  std::string zero_reason;  // why it is not what was asked for; empty where it is
  GradReduceType grad_reduce_type = GradReduceType::kFp32;
  bool canonical_reduction = false;  // plan/sum_tree.h
  const spec::OptimizerKind* optimizer = &spec::adamw();
  double passes_per_step = 1;  // of the batch, forward and backward, in the mean: some optimizers want more than one
  bool z_loss = false;         // in addition to the loss of the vocabulary
  int64_t sequence_length = 0;
  int64_t micro_batch_size = 0, global_batch_size = 0;
  std::vector<int64_t> rampup_batch_size;  // empty, or start, increment, samples

  // Of a step on one data-parallel rank, at the full batch size.
  int64_t num_micro_batches() const { return global_batch_size / (micro_batch_size * grid.data); }
  int64_t num_sharers() const { return grid.data * grid.context; }
  bool is_recomputed(int64_t layer_of_part, int64_t num_layers_of_part) const {
    return layer_of_part < num_recomputed(recompute, num_layers_of_part);
  }
};

// Bytes of an element of the residual stream between layers.
double stream_element_bytes(const RunShape& run);

}  // namespace espalier::plan
