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

std::string to_string(spec::Fp8 fp8) {
  switch (fp8) {
    case spec::Fp8::kNone: return "none";
    case spec::Fp8::kE4M3: return "e4m3";
    case spec::Fp8::kHybrid: return "hybrid";
  }
  return "none";
}

double element_bytes(Precision precision) { return precision == Precision::kFp32 ? 4 : 2; }

double stream_element_bytes(const RunShape& run) {
  return run.model.fp32_residual ? element_bytes(Precision::kFp32) : element_bytes(run.precision);
}

}  // namespace espalier::plan
