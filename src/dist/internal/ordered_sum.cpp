#include "dist/internal/ordered_sum.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace espalier::dist {
namespace {

// Contexts in order, each the sum of a tree.
at::Tensor take_all(std::vector<SumStack>& of_context) {
  at::Tensor total = of_context[0].take();
  for (size_t context = 1; context < of_context.size(); ++context) total.add_(of_context[context].take());
  return total;
}

}  // namespace

void SumStack::add(const plan::SumNode& node, const at::Tensor& values) {
  if (held_.empty() || !plan::are_halves(held_.back().node, node)) {
    held_.push_back({node, values.clone()});
    return;
  }
  held_.back().values.add_(values);
  held_.back().node = plan::parent(node);
  while (held_.size() > 1 && plan::are_halves(held_[held_.size() - 2].node, held_.back().node)) {
    const Summand right = std::move(held_.back());
    held_.pop_back();
    held_.back().values.add_(right.values);
    held_.back().node = plan::parent(right.node);
  }
}

std::vector<Summand> SumStack::add_last(const plan::SumNode& node, const at::Tensor& values) {
  Summand last{node, values};
  while (!held_.empty() && plan::are_halves(held_.back().node, last.node)) {
    last.values.add_(held_.back().values);  // a + b and b + a are the same bits
    last.node = plan::parent(last.node);
    held_.pop_back();
  }
  std::vector<Summand> all = std::exchange(held_, {});
  all.push_back(last);
  return all;
}

at::Tensor SumStack::take() {
  ESPALIER_CHECK(!held_.empty(), "a sum of nothing");
  const std::vector<Summand> all = std::exchange(held_, {});
  return join_into_last(all);
}

at::Tensor join_into_last(const std::vector<Summand>& summands) {
  const at::Tensor& sum = summands.back().values;
  for (size_t at = summands.size() - 1; at-- > 0;) sum.add_(summands[at].values);
  return sum;
}

PendingTree::PendingTree(const std::vector<Summand>& own, const std::vector<std::vector<plan::SumNode>>& nodes,
                         const GradientRanks& ranks, const Group& group)
    : nodes_(nodes), ranks_(ranks) {
  const std::vector<plan::SumNode>& mine = nodes_[static_cast<size_t>(group.rank() / ranks.num_contexts)];
  ESPALIER_CHECK(own.size() == mine.size(), own.size(), " sums of a replica that has ", mine.size());
  const int64_t size = group.size(), count = own.back().values.numel(), part = (count + size - 1) / size;
  size_t rounds = 0;
  for (const std::vector<plan::SumNode>& of_replica : nodes_) rounds = std::max(rounds, of_replica.size());
  for (size_t round = 0; round < rounds; ++round) {
    // Who has fewer sends its last again, which nobody adds.
    const Summand& sent = own[std::min(round, own.size() - 1)];
    ESPALIER_CHECK(round >= own.size() || sent.node == mine[round], "sum ", round, " is another node of the tree");
    at::Tensor values = sent.values;
    if (part * size != count) {
      values = at::zeros({part * size}, sent.values.options());
      values.narrow(0, 0, count).copy_(sent.values);
    }
    received_.push_back(at::empty({size, part}, values.options()));
    exchanges_.push_back(group.start_all_to_all_into(received_.back(), values.view({size, part})));
  }
}

at::Tensor PendingTree::wait() {
  for (Pending& exchange : exchanges_) exchange.wait();
  exchanges_.clear();
  std::vector<SumStack> of_context(static_cast<size_t>(ranks_.num_contexts));
  for (size_t replica = 0; replica < nodes_.size(); ++replica)
    for (size_t round = 0; round < nodes_[replica].size(); ++round)
      for (int64_t context = 0; context < ranks_.num_contexts; ++context)
        of_context[static_cast<size_t>(context)].add(
            nodes_[replica][round], received_[round][ranks_.rank_of(context, static_cast<int64_t>(replica))]);
  received_.clear();
  return take_all(of_context);
}

LeafSum::LeafSum(const GradientRanks& ranks, const Group& group)
    : ranks_(ranks), group_(&group), of_context_(static_cast<size_t>(ranks.num_contexts)) {}

void LeafSum::send(int64_t round, const at::Tensor& values) {
  ESPALIER_CHECK(!received_.defined(), "the round before is still under way");
  round_ = round;
  received_ = at::empty({group_->size(), values.numel() / group_->size()}, values.options());
  exchange_ = group_->start_all_to_all_into(received_, values.view_as(received_));
}

void LeafSum::receive() {
  if (!received_.defined()) return;
  exchange_.wait();
  for (int64_t context = 0; context < ranks_.num_contexts; ++context)
    for (int64_t replica = 0; replica < ranks_.num_replicas; ++replica)
      of_context_[static_cast<size_t>(context)].add({0, round_ * ranks_.num_replicas + replica},
                                                    received_[ranks_.rank_of(context, replica)]);
  received_.reset();
}

void LeafSum::add_zeros(int64_t round, const at::TensorOptions& options, int64_t part) {
  const at::Tensor zeros = at::zeros({part}, options);
  for (SumStack& sums : of_context_)
    for (int64_t replica = 0; replica < ranks_.num_replicas; ++replica)
      sums.add({0, round * ranks_.num_replicas + replica}, zeros);
}

at::Tensor LeafSum::take() { return take_all(of_context_); }

void sum_in_order(const at::Tensor& values, const Group& group) {
  if (group.size() == 1) return;
  const at::Tensor all = group.all_gather(values.view({1, -1}));
  values.copy_(all[0].view_as(values));
  for (int64_t rank = 1; rank < group.size(); ++rank) values.add_(all[rank].view_as(values));
}

}  // namespace espalier::dist
