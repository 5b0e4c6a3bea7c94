// The second pass of Muon: directions of whole matrices, whatever ranks hold parts of them.
//
// Every matrix of a stage's layers (spec::ParamSpec::matrices) has one rank of those that hold parts of it which makes
// it orthogonal. So the result does not depend on the layout, but for the sums of gradients and the number of threads
// that multiply. Parameters are taken in batches of as many as there are ranks: enough for all of them to work at the
// same time, and a rank holds little more than one whole parameter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "dist/grid.h"
#include "dist/reduce.h"
#include "spec/optimizer_settings.h"
#include "tensor/param_set.h"

namespace espalier::optim {

// One matrix, and which rank orthogonalises it.
struct MatrixJob {
  const tensor::Param* param = nullptr;
  spec::MatrixRows rows;
  int64_t tensor_rank = 0, gradient_rank = 0;
};

class MatrixDirections {
 public:
  // `pieces`: what this rank owns, in the order of `params`; other ranks of grid.gradient own the rest if `is_sharded`.
  // All must outlive this.
  MatrixDirections(tensor::ParamSet& params, const std::vector<const dist::OwnedPiece*>& pieces, const dist::Grid& grid,
                   bool is_sharded, const spec::OptimizerSettings& settings);

  // Replaces the direction in the gradients of the pieces by its scaled orthogonal matrix. Called by all ranks of
  // grid.tensor and grid.gradient.
  void orthogonalize() const;

  const std::vector<MatrixJob>& jobs() const { return jobs_; }

 private:
  // Jobs [begin, end) of jobs_.
  struct Batch {
    size_t begin = 0, end = 0;
  };
  void make_batches(int64_t num_ranks);
  void divide_work(const Batch& batch, int64_t num_ranks);
  void run(const Batch& batch) const;
  bool is_mine(const MatrixJob& job) const;
  at::Tensor gathered(const tensor::Param& param) const;
  void exchange(const MatrixJob& job, const at::Tensor& matrix) const;
  void take_own(const tensor::Param& param, const at::Tensor& whole) const;

  std::vector<const dist::OwnedPiece*> pieces_;  // of parameters with matrices
  const dist::Grid& grid_;
  bool is_sharded_;
  spec::OptimizerSettings settings_;
  at::ScalarType compute_type_;
  at::Device device_;
  std::vector<MatrixJob> jobs_;  // by parameter
  std::vector<Batch> batches_;
};

}  // namespace espalier::optim
