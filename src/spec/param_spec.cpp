#include "spec/param_spec.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/format.h"

namespace espalier::spec {

Init xavier_uniform(const std::vector<int64_t>& shape) {
  ESPALIER_CHECK(shape.size() == 2, "a matrix has 2 sizes, found ", shape.size());
  return Init::uniform(std::sqrt(6.0 / static_cast<double>(shape[0] + shape[1])));
}

bool ParamSpec::is_used_at(int64_t other) const {
  return std::find(other_depths.begin(), other_depths.end(), other) != other_depths.end();
}

int64_t ParamSpec::num_elements() const {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

int64_t num_elements(const std::vector<ParamSpec>& specs) {
  int64_t count = 0;
  for (const ParamSpec& spec : specs) count += spec.num_elements();
  return count;
}

std::string stack_depth_name(int64_t depth, int64_t num_layers) {
  if (depth == 0) return "embedding";
  if (depth > num_layers) return "final";
  return format_printf("%05lld", static_cast<long long>(depth - 1));
}

}  // namespace espalier::spec
