#include "dist/reduce.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>

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
  at::Tensor grads, values;  // all of it; undefined where they come and go
  at::Tensor own_grads, own_values;
  spec::IndexRange own;            // elements of the flat buffers
  spec::IndexRange own_of_all;     // the same, counted in the unit
  std::vector<size_t> params;      // that lie in it, in whole or in part
  std::vector<const Group*> more;  // what this rank owns is summed over these as well
  int64_t num_open = 0;            // parameters that expect more additions in this step
  PendingSum pending;
  // In canonical order:
  SumStack sums;  // of the micro-batches before this one, up to ZeRO 1
  PendingTree tree;
  std::optional<LeafSum> leaves;  // from ZeRO 2 on
};

GradReducer::GradReducer(tensor::ParamSet& params, const Grid& grid, const ReduceOptions& options)
    : params_(params),
      grid_(grid),
      options_(options),
      shape_{.stage = grid.gradient.size() > 1 ? options.zero : ZeroStage::kNone,
             .num_ranks = grid.gradient.size(),
             .unit_elements = options.bucket_bytes / static_cast<int64_t>(sizeof(float))},
      passing_grads_(params, grid.gradient, options.type, options.overlap,
                     options.canonical ? std::optional(gradient_ranks()) : std::nullopt),
      layers_(params, grid.gradient),
      additions_(params.params().size()),
      expected_(params.params().size(), kUnknown) {
  ESPALIER_CHECK(options.type == at::kFloat || options.type == at::kBFloat16, "gradients travel as ", options.type);
  ESPALIER_CHECK(!options.canonical || options.type == at::kFloat, "canonical sums of ", options.type);
  const spec::Sharing& sharing = params.sharing();
  ESPALIER_CHECK(sharing.stage == shape_.stage && (!is_sharded() || sharing.num_ranks == shape_.num_ranks),
                 "the parameters are shared as for ZeRO ", static_cast<int>(sharing.stage), " by ", sharing.num_ranks,
                 " ranks, not ZeRO ", static_cast<int>(shape_.stage), " by ", shape_.num_ranks);
  ESPALIER_CHECK(shape_.stage < ZeroStage::kGradients || grid.shape.pipeline == 1, "ZeRO ",
                 static_cast<int>(shape_.stage), " with ", grid.shape.pipeline, " pipeline stages");
  make_units();
  make_pieces();
  if (grid_.gradient.size() > 1 && options_.overlap && shape_.stage < ZeroStage::kGradients)
    params_.grad_queue().set_on_added([this](const tensor::Param& param) { on_added(param); });
}

GradReducer::~GradReducer() {
  params_.grad_queue().set_on_added({});
  params_.grad_queue().set_before_add({});
}

void GradReducer::make_units() {
  const spec::FlatLayout& layout = params_.layout();
  const std::vector<plan::ZeroUnit> ranges = plan::zero_units(layout, shape_);
  for (const plan::ZeroUnit& range : ranges) {
    Unit unit;
    unit.own = plan::zero_part(range, shape_, grid_.gradient.rank());
    unit.own_of_all = {unit.own.begin - range.begin, unit.own.end - range.begin};
    const auto all = [&](const at::Tensor& flat, const at::Tensor& section) {
      return flat.defined() ? flat.narrow(0, range.begin, range.count()) : section;
    };
    const auto own = [&](const at::Tensor& whole, const at::Tensor& kept) {
      return whole.defined() ? whole.narrow(0, unit.own_of_all.begin, unit.own.count()) : kept;
    };
    unit.grads = all(params_.flat_grads(), params_.section_grads(range.section));
    unit.values = all(params_.flat_values(), params_.section_values(range.section));
    unit.own_grads = own(unit.grads, passing_grads_.own(range.section));
    unit.own_values = own(unit.values, layers_.own(range.section));
    if (!range.stages.empty()) unit.more.push_back(&grid_.shared_by(range.stages));
    const bool partial = range.replicated && (options_.sequence_parallel || range.use_is_split);
    if (partial && grid_.tensor.size() > 1) unit.more.push_back(&grid_.tensor);
    if (options_.canonical && shape_.stage >= ZeroStage::kGradients && unit.grads.defined())
      unit.leaves.emplace(gradient_ranks(), grid_.gradient);
    units_.push_back(std::move(unit));
  }
  units_of_.resize(params_.params().size());
  for (size_t param = 0; param < units_of_.size(); ++param)
    for (size_t unit = 0; unit < ranges.size(); ++unit) {
      const int64_t begin = layout.offsets[param], end = begin + layout.counts[param];
      if (end <= ranges[unit].begin || ranges[unit].end <= begin) continue;
      units_of_[param].push_back(unit);
      units_[unit].params.push_back(param);
    }
}

void GradReducer::make_pieces() {
  const spec::FlatLayout& layout = params_.layout();
  for (const plan::ZeroPiece& piece : plan::zero_pieces(layout, shape_, grid_.gradient.rank())) {
    const auto number = static_cast<size_t>(piece.param);
    tensor::Param& param = params_.params()[number];
    if (piece.count == layout.counts[number] && param.value.defined() && param.grad.defined()) {
      pieces_.push_back(whole_piece(param));
      continue;
    }
    // Shared, so that it is in one unit.
    const int64_t begin = layout.offsets[number] + piece.param_begin;
    const auto unit = std::find_if(units_.begin(), units_.end(), [&](const Unit& u) {
      return u.own.begin <= begin && begin + piece.count <= u.own.end;
    });
    ESPALIER_CHECK(unit != units_.end(), param.spec->name, " from ", piece.param_begin, " on");
    const bool whole = piece.count == layout.counts[number];
    const std::vector<int64_t> shape =
        whole ? spec::local_shape(*param.spec, params_.shard()) : std::vector<int64_t>{piece.count};
    const auto view = [&](const at::Tensor& own) {
      return own.narrow(0, begin - unit->own.begin, piece.count).view(shape);
    };
    pieces_.push_back(
        {&param, piece.param_begin, piece.param_begin + piece.count, view(unit->own_values), view(unit->own_grads)});
  }
}

void GradReducer::begin_step(int64_t num_micro_batches) {
  ESPALIER_CHECK(num_micro_batches > 0, num_micro_batches, " micro-batches");
  params_.forget_grads();
  passing_grads_.begin_step();
  num_micro_batches_ = num_micro_batches;
  micro_batch_ = 0;
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
  if (options_.canonical && micro_batch_ + 1 < num_micro_batches_) return;
  while (num_unsent_ > 0 && units_[num_unsent_ - 1].num_open == 0) send(units_[--num_unsent_]);
}

// What was forgotten as the step began and not written since.
void GradReducer::settle(const Unit& unit) {
  for (const size_t param : unit.params) tensor::settle_grad(params_.params()[param]);
}

void GradReducer::send(Unit& unit) {
  settle(unit);
  if (options_.canonical) return send_canonical(unit);
  if (grid_.gradient.size() > 1 && unit.grads.defined())
    unit.pending = PendingSum(unit.grads, unit.own_of_all, grid_.gradient, options_.type);
}

void GradReducer::receive(Unit& unit) {
  if (options_.canonical) {
    if (travelling_ == &unit) receive_canonical(unit);
    return sum_over_more(unit);
  }
  if (unit.pending.active()) unit.pending.wait_into(unit.own_grads);
  for (const Group* group : unit.more)
    PendingSum(unit.own_grads, {0, unit.own.count()}, *group, options_.type).wait_into(unit.own_grads);
}

void GradReducer::end_micro_batch() {
  if (!options_.canonical) return;
  passing_grads_.end_micro_batch();
  const bool is_last = micro_batch_ + 1 == num_micro_batches_;
  for (Unit& unit : units_) {
    if (!unit.grads.defined()) continue;
    settle(unit);
    if (unit.leaves) {
      unit.leaves->send(micro_batch_, unit.grads);
      unit.leaves->receive();
      unit.grads.zero_();
    } else if (!is_last) {  // the last is added when its unit leaves
      unit.sums.add({0, grid_.data.rank() * num_micro_batches_ + micro_batch_}, unit.grads);
      unit.grads.zero_();
    }
  }
  ++micro_batch_;
}

// One unit at a time, so that no more than one has what all ranks send.
void GradReducer::send_canonical(Unit& unit) {
  if (!unit.grads.defined() || unit.leaves) return;
  const int64_t num_replicas = grid_.data.size(), all = num_replicas * num_micro_batches_;
  const int64_t last = (grid_.data.rank() + 1) * num_micro_batches_ - 1;
  std::vector<Summand> sums = unit.sums.add_last({0, last}, unit.grads);
  if (num_replicas == 1) sums = {{{}, join_into_last(sums)}};
  if (grid_.gradient.size() == 1) return;
  if (travelling_ != nullptr) receive_canonical(*travelling_);
  unit.tree = PendingTree(sums, plan::nodes_of_replicas(all, num_replicas), gradient_ranks(), grid_.gradient);
  travelling_ = &unit;
}

void GradReducer::receive_canonical(Unit& unit) {
  const at::Tensor part = unit.tree.wait();
  travelling_ = nullptr;
  if (is_sharded()) {
    unit.own_grads.copy_(part);
    return;
  }
  const at::Tensor all = grid_.gradient.all_gather(part);
  unit.grads.copy_(all.narrow(0, 0, unit.grads.numel()));
}

void GradReducer::sum_over_more(Unit& unit) {
  if (unit.leaves) unit.own_grads.copy_(unit.leaves->take());
  for (const Group* group : unit.more) sum_in_order(unit.own_grads, *group);
}

void GradReducer::finish_step() {
  ESPALIER_CHECK(!options_.canonical || micro_batch_ == num_micro_batches_, micro_batch_, " micro-batches of ",
                 num_micro_batches_, " have ended");
  passing_grads_.finish_step();
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
  layers_.forget_ahead();
  Pending pending;  // two at a time: one travels while the next is packed
  for (const Unit& unit : units_) {
    if (!unit.values.defined()) continue;
    Pending next = grid_.gradient.start_all_gather_into(unit.values, unit.own_values);
    pending.wait();
    pending = std::move(next);
  }
  pending.wait();
}

}  // namespace espalier::dist
