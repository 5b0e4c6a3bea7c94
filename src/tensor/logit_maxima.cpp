#include "tensor/logit_maxima.h"

#include <ATen/ATen.h>

#include <limits>

namespace espalier::tensor {

void LogitMaxima::begin() {
  for (HeadLogits& entry : entries_) entry.largest.fill_(-std::numeric_limits<float>::infinity());
  collecting_ = true;
}

}  // namespace espalier::tensor
