#include "optim/matrix_directions.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "optim/orthogonalize.h"
#include "spec/shard.h"

namespace espalier::optim {
namespace {

// Multiply-adds of an iteration: two Gram products, and one with the matrix.
double cost_of(const MatrixJob& job) {
  const double rows = static_cast<double>(job.rows.num_rows());
  const double columns = static_cast<double>(job.param->spec->shape[1]);
  const double small = std::min(rows, columns), large = std::max(rows, columns);
  return small * small * (2 * large + small);
}

// The rows of a matrix within the parameter that holds it: [times, count, columns].
at::Tensor rows_of(const at::Tensor& whole, const spec::MatrixRows& rows) {
  const int64_t columns = whole.size(1);
  return whole.as_strided({rows.times, rows.count, columns}, {rows.stride * columns, columns, 1},
                          whole.storage_offset() + rows.first * columns);
}

// Copies a rank's part of a whole tensor into its local tensor, or back.
void copy_local(const spec::ParamSpec& spec, const spec::TensorShard& shard, const at::Tensor& whole,
                const at::Tensor& local, bool to_whole) {
  const int64_t dim = spec.tensor_placement.dim;
  int64_t at = 0;
  for (const spec::IndexRange& range : spec::local_ranges(spec, shard)) {
    const at::Tensor there = whole.narrow(dim, range.begin, range.count());
    const at::Tensor here = local.narrow(dim, at, range.count());
    if (to_whole)
      there.copy_(here);
    else
      here.copy_(there);
    at += range.count();
  }
}

bool is_replicated(const spec::ParamSpec& spec) {
  return spec.tensor_placement.kind == spec::Placement::Kind::kReplicated;
}

}  // namespace

MatrixDirections::MatrixDirections(tensor::ParamSet& params, const std::vector<const dist::OwnedPiece*>& pieces,
                                   const dist::Grid& grid, bool is_sharded, const spec::OptimizerSettings& settings)
    : pieces_(pieces),
      grid_(grid),
      is_sharded_(is_sharded),
      settings_(settings),
      compute_type_(params.compute_type() == at::kBFloat16 ? at::kBFloat16 : at::kFloat),
      device_(params.device()) {
  for (const tensor::Param& param : params.params())
    for (const spec::MatrixRows& rows : param.spec->matrices) jobs_.push_back({&param, rows, 0, 0});
  make_batches(grid.tensor.size() * grid.gradient.size());
}

void MatrixDirections::make_batches(int64_t num_ranks) {
  Batch batch;
  int64_t num_params = 0;
  for (size_t at = 0; at < jobs_.size(); ++at) {
    if (at == 0 || jobs_[at].param != jobs_[at - 1].param) ++num_params;
    const bool is_last_of_param = at + 1 == jobs_.size() || jobs_[at + 1].param != jobs_[at].param;
    if (!is_last_of_param || (num_params < num_ranks && at + 1 < jobs_.size())) continue;
    batch.end = at + 1;
    divide_work(batch, num_ranks);
    batches_.push_back(batch);
    batch.begin = batch.end, num_params = 0;
  }
}

// The most expensive first, each to the rank that has least to do so far: the same on all ranks.
void MatrixDirections::divide_work(const Batch& batch, int64_t num_ranks) {
  std::vector<size_t> order(batch.end - batch.begin);
  std::iota(order.begin(), order.end(), batch.begin);
  std::stable_sort(order.begin(), order.end(),
                   [this](size_t a, size_t b) { return cost_of(jobs_[a]) > cost_of(jobs_[b]); });
  std::vector<double> work(static_cast<size_t>(num_ranks));
  for (const size_t at : order) {
    const auto least = std::min_element(work.begin(), work.end());
    *least += cost_of(jobs_[at]);
    jobs_[at].tensor_rank = (least - work.begin()) % grid_.tensor.size();
    jobs_[at].gradient_rank = (least - work.begin()) / grid_.tensor.size();
  }
}

bool MatrixDirections::is_mine(const MatrixJob& job) const {
  return job.tensor_rank == grid_.tensor.rank() && job.gradient_rank == grid_.gradient.rank();
}

// The whole direction of a parameter, on every rank: a sum in which all but one part of each element are zeros.
at::Tensor MatrixDirections::gathered(const tensor::Param& param) const {
  const spec::ParamSpec& spec = *param.spec;
  const auto fp32 = at::TensorOptions().dtype(at::kFloat).device(device_);
  const bool is_split = grid_.tensor.size() > 1 && !is_replicated(spec);
  at::Tensor local = at::zeros(spec::local_shape(spec, grid_.tensor_shard()), fp32);
  for (const dist::OwnedPiece* piece : pieces_)
    if (piece->param == &param)
      local.view({-1}).narrow(0, piece->begin, piece->end - piece->begin).copy_(piece->grad.view({-1}));
  if (is_sharded_) grid_.gradient.all_reduce(local);
  if (!is_split) return local;
  const at::Tensor whole = at::zeros(spec.shape, fp32);
  copy_local(spec, grid_.tensor_shard(), whole, local, /*to_whole=*/true);
  grid_.tensor.all_reduce(whole);
  return whole;
}

// From the rank that made it to all others.
void MatrixDirections::exchange(const MatrixJob& job, const at::Tensor& matrix) const {
  if (grid_.gradient.rank() == job.gradient_rank) grid_.tensor.broadcast(matrix, job.tensor_rank);
  grid_.gradient.broadcast(matrix, job.gradient_rank);
}

void MatrixDirections::take_own(const tensor::Param& param, const at::Tensor& whole) const {
  const spec::ParamSpec& spec = *param.spec;
  at::Tensor local = whole;
  if (grid_.tensor.size() > 1 && !is_replicated(spec)) {
    local = at::empty(spec::local_shape(spec, grid_.tensor_shard()), whole.options());
    copy_local(spec, grid_.tensor_shard(), whole, local, /*to_whole=*/false);
  }
  for (const dist::OwnedPiece* piece : pieces_)
    if (piece->param == &param)
      piece->grad.view({-1}).copy_(local.view({-1}).narrow(0, piece->begin, piece->end - piece->begin));
}

void MatrixDirections::orthogonalize() const {
  for (const Batch& batch : batches_) run(batch);
}

void MatrixDirections::run(const Batch& batch) const {
  std::vector<at::Tensor> matrices;  // of the batch; made here if they are this rank's, else to be received
  at::Tensor whole;
  for (size_t at = batch.begin; at < batch.end; ++at) {
    const MatrixJob& job = jobs_[at];
    if (at == batch.begin || job.param != jobs_[at - 1].param) whole = gathered(*job.param);
    matrices.push_back(is_mine(job) ? rows_of(whole, job.rows).reshape({-1, whole.size(1)}) : at::Tensor());
  }
  for (size_t at = batch.begin; at < batch.end; ++at) {
    at::Tensor& matrix = matrices[at - batch.begin];
    if (matrix.defined())
      matrix =
          orthogonalized(matrix, compute_type_, settings_).mul_(muon_scale(matrix.size(0), matrix.size(1), settings_));
  }
  for (size_t at = batch.begin; at < batch.end; ++at) {
    const MatrixJob& job = jobs_[at];
    const std::vector<int64_t>& shape = job.param->spec->shape;
    if (at == batch.begin || job.param != jobs_[at - 1].param) whole = at::empty(shape, whole.options());
    at::Tensor& matrix = matrices[at - batch.begin];
    if (!matrix.defined()) matrix = at::empty({job.rows.num_rows(), shape[1]}, whole.options());
    exchange(job, matrix);
    rows_of(whole, job.rows).copy_(matrix.view({job.rows.times, job.rows.count, shape[1]}));
    matrix.reset();
    if (at + 1 == batch.end || jobs_[at + 1].param != job.param) take_own(*job.param, whole);
  }
}

}  // namespace espalier::optim
