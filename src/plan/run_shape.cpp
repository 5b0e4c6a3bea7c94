#include "plan/run_shape.h"

#include <algorithm>

namespace espalier::plan {

std::string to_string(Precision precision) {
  switch (precision) {
    case Precision::kFp32: return "fp32";
    case Precision::kBf16: return "bf16";
    case Precision::kFp16: return "fp16";
  }
  return "";
}

double element_bytes(Precision precision) { return precision == Precision::kFp32 ? 4 : 2; }

int64_t num_recomputed(const Recompute& recompute, int64_t num_layers_of_part) {
  if (recompute.kind == Recompute::Kind::kUniform) return num_layers_of_part;
  return recompute.kind == Recompute::Kind::kBlock ? std::min(recompute.num_layers, num_layers_of_part) : 0;
}

}  // namespace espalier::plan
