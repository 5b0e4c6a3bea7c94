// Sums gradients over ranks, and keeps of them, and of the values, what ZeRO leaves to this rank.
//
// One rule: a gradient is summed over every axis on which the parameter is replicated and its use is split:
//   - over data and context (grid.gradient): every parameter;
//   - over tensor ranks: parameters replicated over the tensor axis whose use is split (norms of heads), and under
//     sequence parallelism all of them (norms, row biases);
//   - over the stages that hold it (grid.shared): what several depths use, once, so that all copies stay equal.
// Sums, not means: the loss was divided by the tokens of the whole batch.
//
// Exchange goes unit by unit (plan/zero_ranges.h), from the last to the first, in this order on all ranks. A unit
// leaves while the backward pass is still running, as soon as its parameters have had all their additions; how many
// that are per micro-batch is learned in the first step. What is summed does not depend on when it leaves.
//
// In canonical order (internal/ordered_sum.h) a step's sum has the same bits whatever the number of replicas: the
// gradient of each micro-batch is a sum of its own, and these are added in the order of one tree. Up to ZeRO 1 replicas
// have blocks of the step's micro-batches, from ZeRO 2 on they take turns (takes_turns).
//
// From ZeRO 2 on the gradients of a layer exist only while they are computed (internal/passing_grads.h), under
// ZeRO 3 its values only while they are used (layer_gather.h). Both need one pipeline stage.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "dist/grid.h"
#include "dist/internal/ordered_sum.h"
#include "dist/internal/passing_grads.h"
#include "dist/layer_gather.h"
#include "plan/zero_ranges.h"
#include "tensor/param_set.h"

namespace espalier::dist {

using plan::ZeroStage;

struct ReduceOptions {
  bool sequence_parallel = false;
  at::ScalarType type = at::kFloat;  // in which gradients travel: fp32 or bf16 (rounded, summed, widened)
  ZeroStage zero = ZeroStage::kNone;
  int64_t bucket_bytes = 40 << 20;  // of fp32 gradients in one exchange, about
  bool overlap = true;              // with the backward pass
  bool canonical = false;           // --canonical-reduction; fp32, one chunk a stage, no deferred gradients
};

// Elements [begin, end) of a parameter's local tensor, which this rank updates.
struct OwnedPiece {
  tensor::Param* param = nullptr;
  int64_t begin = 0, end = 0;
  at::Tensor value;  // compute type; the parameter's shape where it is whole, else [end - begin]
  at::Tensor grad;   // fp32, likewise; summed when finish_step() has returned
};

// Every parameter whole: one process, no exchange.
std::vector<OwnedPiece> whole_pieces(tensor::ParamSet& params);

class GradReducer {
 public:
  // `params` and `grid` outlive it; `params` must share as `options.zero` says, among grid.gradient.size() ranks. Takes
  // the hooks of params.grad_queue().
  GradReducer(tensor::ParamSet& params, const Grid& grid, const ReduceOptions& options);
  ~GradReducer();
  GradReducer(const GradReducer&) = delete;
  GradReducer& operator=(const GradReducer&) = delete;

  // Before the first forward pass of a step: gradients begin at zero.
  void begin_step(int64_t num_micro_batches);
  // In canonical order: all weight gradients of a micro-batch were added, and none of the next. Nothing else is done
  // with it otherwise.
  void end_micro_batch();
  // All weight gradients of the step were added. Returns when the gradients of all pieces are summed; under ZeRO those
  // of other elements are then undefined.
  void finish_step();

  // What this rank updates, by parameter in the order of the list.
  const std::vector<OwnedPiece>& pieces() const { return pieces_; }
  // Whether other ranks of grid.gradient own other pieces.
  bool is_sharded() const { return shape_.stage != ZeroStage::kNone && shape_.num_ranks > 1; }
  // Gives every rank the values of all pieces, but those that come and go. Called by all ranks of grid.gradient.
  void gather_values();
  // For before_layer() and after_layer().
  LayerGather& layers() { return layers_; }

 private:
  struct Unit;
  void make_units();
  void make_pieces();
  void on_added(const tensor::Param& param);
  void send_ready_units();
  void send_canonical(Unit& unit);
  void receive_canonical(Unit& unit);
  void sum_over_more(Unit& unit);
  GradientRanks gradient_ranks() const { return {grid_.context.size(), grid_.data.size()}; }
  void settle(const Unit& unit);
  void send(Unit& unit);
  void receive(Unit& unit);
  void learn();

  tensor::ParamSet& params_;
  const Grid& grid_;
  ReduceOptions options_;
  plan::ZeroShape shape_;
  PassingGrads passing_grads_;
  LayerGather layers_;
  std::vector<Unit> units_;
  std::vector<OwnedPiece> pieces_;
  size_t num_unsent_ = 0;  // units leave from the last to the first

  std::vector<std::vector<size_t>> units_of_;  // of each parameter
  int64_t num_micro_batches_ = 0;
  int64_t micro_batch_ = 0;     // of this replica: how many have ended
  Unit* travelling_ = nullptr;  // in canonical order: one at a time
  bool learned_ = false;
  std::vector<int64_t> additions_;  // of each parameter in this step
  std::vector<int64_t> expected_;   // of each parameter per micro-batch; kUnknown where micro-batches differ
};

}  // namespace espalier::dist
