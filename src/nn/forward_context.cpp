#include "nn/forward_context.h"

namespace espalier::nn {

kernels::DropoutSite ForwardContext::dropout_site(const std::string& name) const {
  if (hidden_dropout == 0) return {};
  return {.probability = hidden_dropout,
          .key = tensor::philox_key(seed, ("dropout/" + name).c_str()),
          .sample_numbers = sample_numbers,
          .first_position = first_position};
}

}  // namespace espalier::nn
