// cuBLAS and cublasLt as plain loops over host memory, as strict about what they are asked as the headers say.
#pragma once

#include <cstdint>

namespace espalier::cuda_test {

struct CublasOnHost {
  bool light_knows_nothing = false;  // cublasLt has no algorithm
  bool light_fails = false;          // it cannot run the one that it has named
  bool has_fp8 = true;               // the device multiplies it
  int64_t questions = 0;             // to cublasLt's heuristic
  int64_t light_products = 0, plain_products = 0;
};
CublasOnHost& cublas_on_host();

}  // namespace espalier::cuda_test
