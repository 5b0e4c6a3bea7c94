// Sums over micro-batches and replicas in the order of plan/sum_tree.h (--canonical-reduction), so that they do not
// depend on which rank has which micro-batch.
//
// Up to ZeRO 1 a replica has a block of micro-batches, adds what whole nodes it has of the tree, and once a step the
// ranks exchange these (PendingTree). From ZeRO 2 on replicas take turns, and every micro-batch's gradient is exchanged
// as soon as it is there; what arrives is in the tree's order, and each rank adds its part of all of them (LeafSum).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "dist/group.h"
#include "plan/sum_tree.h"

namespace espalier::dist {

// A sum, and which node of the tree it is.
struct Summand {
  plan::SumNode node;
  at::Tensor values;  // fp32
};

// Adds summands that come in the order of micro-batches.
class SumStack {
 public:
  // Does not keep `values`: copies them where there is nothing yet to add them to.
  void add(const plan::SumNode& node, const at::Tensor& values);
  // The same of the last one: into `values` is added what goes with them. All sums, `values` last; this is empty then.
  std::vector<Summand> add_last(const plan::SumNode& node, const at::Tensor& values);
  // The sum of all; this is empty then.
  at::Tensor take();
  bool empty() const { return held_.empty(); }

 private:
  std::vector<Summand> held_;
};

// Adds all to the last, from the right; its values.
at::Tensor join_into_last(const std::vector<Summand>& summands);

// The ranks of Grid::gradient: context ranks of a replica are neighbours. What they have of a micro-batch belongs to
// different positions: they are added after all else, in order.
struct GradientRanks {
  int64_t num_contexts = 1, num_replicas = 1;
  int64_t rank_of(int64_t context, int64_t replica) const { return replica * num_contexts + context; }
};

// A sum over the ranks under way. Every rank receives its part of all summands and adds them.
class PendingTree {
 public:
  PendingTree() = default;
  // `own`: what this rank has, plan::nodes_of_replicas() of its replica, all of one size; used up. A part is the
  // elements of one rank: 1 / group.size() of them, rounded up.
  PendingTree(const std::vector<Summand>& own, const std::vector<std::vector<plan::SumNode>>& nodes,
              const GradientRanks& ranks, const Group& group);
  bool active() const { return !exchanges_.empty(); }
  // This rank's part of the sum, [part]; where the size does not divide, the last ends with zeros. Once.
  at::Tensor wait();

 private:
  std::vector<std::vector<plan::SumNode>> nodes_;
  GradientRanks ranks_;
  std::vector<at::Tensor> received_;  // of each round: [group.size(), part]
  std::vector<Pending> exchanges_;
};

// This rank's part of a sum over micro-batches of which each is exchanged by itself. In round m the replicas have
// micro-batches m * replicas + replica.
class LeafSum {
 public:
  LeafSum(const GradientRanks& ranks, const Group& group);
  // Starts the exchange of this rank's gradient of the round, [group.size() * part]; it stays untouched until
  // receive() has returned.
  void send(int64_t round, const at::Tensor& values);
  void receive();  // nothing where nothing is under way
  // A round in which no rank has anything.
  void add_zeros(int64_t round, const at::TensorOptions& options, int64_t part);
  at::Tensor take();

 private:
  GradientRanks ranks_;
  const Group* group_;
  std::vector<SumStack> of_context_;
  int64_t round_ = 0;
  at::Tensor received_;
  Pending exchange_;
};

// The sum over a group in the order of its ranks, whatever the transport and the number of elements.
void sum_in_order(const at::Tensor& values, const Group& group);

}  // namespace espalier::dist
