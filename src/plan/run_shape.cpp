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

}  // namespace espalier::plan
