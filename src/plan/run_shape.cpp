#include "plan/run_shape.h"

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

double stream_element_bytes(const RunShape& run) {
  return run.model.fp32_residual ? element_bytes(Precision::kFp32) : element_bytes(run.precision);
}

}  // namespace espalier::plan
