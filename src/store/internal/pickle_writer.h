// A tree of values as a pickle of protocol 2, which is torch.save's.
#pragma once

#include <string>
#include <vector>

#include "store/torch_value.h"

namespace espalier::store {

struct Pickled {
  std::string pickle;
  std::vector<TorchValue> tensors;  // tensor i is storage "i"; one that occurs in the tree twice is here once
};

Pickled pickle(const TorchValue& root);

}  // namespace espalier::store
