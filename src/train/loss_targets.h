// What the terms of a step's loss are means over, where the batches say it (tensor::Batch::targets): known before the
// first forward pass, so that each term's gradient is divided by what it is a mean over.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "dist/group.h"
#include "tensor/batch.h"

namespace espalier::train {

class LossTargets {
 public:
  struct Count {
    double targets = 0;            // sum over the micro-batches of all replicas
    double num_micro_batches = 0;  // those that have targets
  };

  // Of this replica's micro-batches and, by one sum over `replicas`, of the others'. All of them call it.
  LossTargets(const std::vector<tensor::Batch>& micro_batches, const dist::Group& replicas);

  // The batches say nothing: terms are means over tokens.
  bool empty() const { return counts_.empty(); }
  const Count& of(const std::string& term) const;  // CHECKs that the batches name it

 private:
  std::map<std::string, Count> counts_;
};

}  // namespace espalier::train
