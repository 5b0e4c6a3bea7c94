#include "spec/model_spec.h"

namespace espalier::spec {

int64_t ModelSpec::num_parameters_without_embeddings() const {
  int64_t count = 0;
  for (const ParamSpec& param : params) {
    const bool is_table = param.depth == 0 && param.shape.size() == 2;
    if (!is_table) count += param.num_elements();
  }
  return count;
}

}  // namespace espalier::spec
