#include "dist/reduce.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/error.h"

namespace espalier::dist {
namespace {

constexpr int64_t kUnknown = -1;

OwnedPiece whole_piece(tensor::Param& param) { return {&param, 0, param.value.numel(), param.value, param.grad}; }

}  // namespace

std::vector<OwnedPiece> whole_pieces(tensor::ParamSet& params) {
  std::vector<OwnedPiece> pieces;
  for (tensor::Param& param : params.params())
    if (param.value.numel() > 0) pieces.push_back(whole_piece(param));
  return pieces;
}

struct GradReducer::Unit {
  at::Tensor grads, values;  // all of it
  at::Tensor own_grads, own_values;
  std::vector<const Group*> more;  // what this rank owns is summed over these as well
  int64_t num_open = 0;            // parameters that expect more additions in this step
  at::Tensor wire;                 // grads as they travel
  Pending pending;
};

GradReducer::GradReducer(tensor::ParamSet& params, const Grid& grid, const ReduceOptions& options)
    : params_(params),
      grid_(grid),
      options_(options),
      shape_{.stage = options.zero,
             .num_ranks = grid.gradient.size(),
             .unit_elements = options.bucket_bytes / static_cast<int64_t>(sizeof(float))},
      additions_(params.params().size()),
      expected_(params.params().size(), kUnknown) {
  ESPALIER_CHECK(options.type == at::kFloat || options.type == at::kBFloat16, "gradients travel as ", options.type);
  make_units();
  if (grid_.gradient.size() > 1 && options_.overlap)
    params_.grad_queue().set_on_added([this](const tensor::Param& param) { on_added(param); });
}

GradReducer::~GradReducer() { params_.grad_queue().set_on_added({}); }

void GradReducer::make_units() {
  const spec::FlatLayout& layout = params_.layout();
  const std::vector<plan::ZeroUnit> ranges = plan::zero_units(layout, shape_);
  for (const plan::ZeroUnit& range : ranges) {
    const spec::IndexRange part = plan::zero_part(range, shape_, grid_.gradient.rank());
    Unit unit;
    unit.grads = params_.flat_grads().narrow(0, range.begin, range.count());
    unit.values = params_.flat_values().narrow(0, range.begin, range.count());
    unit.own_grads = params_.flat_grads().narrow(0, part.begin, part.count());
    unit.own_values = params_.flat_values().narrow(0, part.begin, part.count());
    if (range.tied && grid_.embedding.size() > 1) unit.more.push_back(&grid_.embedding);
    if (range.replicated && options_.sequence_parallel && grid_.tensor.size() > 1) unit.more.push_back(&grid_.tensor);
    units_.push_back(std::move(unit));
  }
  units_of_.resize(params_.params().size());
  for (size_t param = 0; param < units_of_.size(); ++param)
    for (size_t unit = 0; unit < ranges.size(); ++unit)
      if (ranges[unit].begin < layout.offsets[param] + layout.counts[param] && layout.offsets[param] < ranges[unit].end)
        units_of_[param].push_back(unit);
  for (const plan::ZeroPiece& piece : plan::zero_pieces(layout, shape_, grid_.gradient.rank())) {
    tensor::Param& param = params_.params()[static_cast<size_t>(piece.param)];
    if (piece.count == param.value.numel()) {
      pieces_.push_back(whole_piece(param));
      continue;
    }
    const int64_t begin = layout.offsets[static_cast<size_t>(piece.param)] + piece.param_begin;
    pieces_.push_back({&param, piece.param_begin, piece.param_begin + piece.count,
                       params_.flat_values().narrow(0, begin, piece.count),
                       params_.flat_grads().narrow(0, begin, piece.count)});
  }
}

void GradReducer::begin_step(int64_t num_micro_batches) {
  params_.zero_grad();
  num_micro_batches_ = num_micro_batches;
  num_unsent_ = units_.size();
  std::fill(additions_.begin(), additions_.end(), 0);
  for (Unit& unit : units_) unit.num_open = 0;
  for (size_t param = 0; param < units_of_.size(); ++param)
    if (expected_[param] != 0)
      for (const size_t unit : units_of_[param]) ++units_[unit].num_open;
}

void GradReducer::on_added(const tensor::Param& param) {
  const size_t index = params_.index_of(param);
  ++additions_[index];
  if (!learned_) return;
  for (const size_t unit : units_of_[index])
    ESPALIER_CHECK(unit < num_unsent_, param.spec->name, " has had ", additions_[index], " additions in a step of ",
                   num_micro_batches_, " micro-batches, ", expected_[index],
                   " each in the first: its sum has already left");
  if (additions_[index] != expected_[index] * num_micro_batches_) return;
  for (const size_t unit : units_of_[index]) --units_[unit].num_open;
  send_ready_units();
}

void GradReducer::send_ready_units() {
  while (num_unsent_ > 0 && units_[num_unsent_ - 1].num_open == 0) send(units_[--num_unsent_]);
}

void GradReducer::send(Unit& unit) {
  if (grid_.gradient.size() == 1) return;
  // In place, where the type allows it.
  unit.wire = unit.grads.to(options_.type);
  // Gloo's reduce-scatter is an all-reduce of a copy.
  if (shape_.stage == ZeroStage::kNone || unit.wire.is_cpu()) {
    unit.pending = grid_.gradient.start_all_reduce(unit.wire);
    return;
  }
  const at::Tensor all = unit.wire;
  unit.wire = all.narrow(0, grid_.gradient.rank() * unit.own_grads.numel(), unit.own_grads.numel());
  unit.pending = grid_.gradient.start_reduce_scatter_into(unit.wire, all);
}

void GradReducer::receive(Unit& unit) {
  if (unit.pending.active()) {
    unit.pending.wait();
    if (options_.type != at::kFloat) {
      const int64_t count = unit.own_grads.numel();
      const bool is_own = unit.wire.numel() == count;
      unit.own_grads.copy_(is_own ? unit.wire : unit.wire.narrow(0, grid_.gradient.rank() * count, count));
    }
    unit.wire.reset();
  }
  for (const Group* group : unit.more) sum(unit.own_grads, *group);
}

void GradReducer::sum(const at::Tensor& values, const Group& group) const {
  const at::Tensor wire = values.to(options_.type);
  group.all_reduce(wire);
  if (options_.type != at::kFloat) values.copy_(wire);
}

void GradReducer::finish_step() {
  while (num_unsent_ > 0) send(units_[--num_unsent_]);
  for (auto unit = units_.rbegin(); unit != units_.rend(); ++unit) receive(*unit);
  if (!learned_) learn();
}

void GradReducer::learn() {
  for (size_t param = 0; param < additions_.size(); ++param)
    expected_[param] = additions_[param] % num_micro_batches_ == 0 ? additions_[param] / num_micro_batches_ : kUnknown;
  learned_ = true;
}

void GradReducer::gather_values() {
  if (!is_sharded()) return;
  std::vector<Pending> pending;
  for (const Unit& unit : units_)
    pending.push_back(grid_.gradient.start_all_gather_into(unit.values, unit.own_values));
  for (Pending& exchange : pending) exchange.wait();
}

}  // namespace espalier::dist
