// An iteration of Newton and Schulz's kind, which moves the singular values of a matrix and leaves its singular
// vectors: X <- a X + (b G + c G^2) X, where G = X X^T. A singular value s becomes a s + b s^3 + c s^5.
//
// Letters: m rows, n columns. The products take 4 m^2 n + 2 m^3 operations; where the machine has bf16 products and X
// is bf16, 3 m^2 n + m^3, because only the lower halves of G and of b G + c G^2 are computed.
#pragma once

#include <ATen/core/Tensor.h>

namespace espalier::kernels {

struct NewtonSchulzStep {
  double a, b, c;
};

// x [m, n] contiguous, fp32 or bf16 -> the same shape and type. In bf16, G, b G + c G^2 and the result are each rounded
// once from fp32 sums. m <= n is faster, and nothing else. Where the machine has bf16 products, the same bits for any
// number of threads in bf16.
at::Tensor newton_schulz(const at::Tensor& x, const NewtonSchulzStep& by);

}  // namespace espalier::kernels
