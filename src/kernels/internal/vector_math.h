// exp, tanh, SiLU and GELU on vectors. Coefficients: tests/oracle/gelu_polynomials.py.
//
// Against double (activation_test.cpp, u = 2^-24): the erf form within 8 u of the value, and of the sum of the absolute
// terms of the derivative; the tanh form within (5 + 8 |inner argument|) u, for the rounding of that argument is what
// exp multiplies. Below 2^-126.5 exp is zero.
#pragma once

namespace espalier::kernels {

// exp(x) for x <= 88 within 1.5 units in the last place; 0 below -87.68. NaN passes through: max returns its second
// operand when either is NaN.
template <class V>
inline V exp(V x) {
  x = max(V::all(-88.029692f), x);
  // Adding 1.5 * 2^23 rounds to an integer n and leaves it in the low bits, here as n + 127: the exponent of 2^n.
  const V magic = V::all(12582912.0f + 127);
  const V shifted = fma(x, V::all(1.44269504f), magic);
  const V n = shifted - magic;
  // ln 2 in two parts; the first has few bits, so that n times it is exact.
  const V r = fma(n, V::all(2.12194440e-4f), fma(n, V::all(-0.693359375f), x));
  V p = V::all(1.316782914e-3f);
  p = fma(p, r, V::all(8.353460596e-3f));
  p = fma(p, r, V::all(4.167633554e-2f));
  p = fma(p, r, V::all(1.666671013e-1f));
  p = fma(p, r, V::all(4.999999202e-1f));
  return fma(p, r * r, r + V::all(1)) * low_bits_to_exponent(shifted);
}

// Within 4 units in the last place. A polynomial near zero, where 1 - exp(-2 |x|) would cancel; where all lanes are
// there, as nearly all values are below two thirds of a soft cap, that is all: a third of the time, the same bits.
template <class V>
inline V tanh(V x) {
  const V z = x * x;
  V p = V::all(-0.005648315302f);
  p = fma(p, z, V::all(0.02058982555f));
  p = fma(p, z, V::all(-0.0537251264f));
  p = fma(p, z, V::all(0.1333127443f));
  p = fma(p, z, V::all(-0.3333327606f));
  const V near_zero = fma(x * z, p, x);
  const V beyond = abs(x) - V::all(0.63f);
  if (!any_positive(beyond)) return near_zero;
  const V e = exp(negative_abs(x + x));
  const V r = (V::all(1) - e) / (V::all(1) + e);
  return select_positive(beyond, select_positive(x, r, V::all(0) - r), near_zero);
}

// x sigmoid(x). With e = exp(-|x|) and r = 1 / (1 + e) the sigmoid is r or e r: nothing overflows or cancels.
template <class V>
struct Silu {
  static V value(V x) {
    const V e = exp(negative_abs(x));
    const V r = V::all(1) / (V::all(1) + e);
    return x * select_positive(x, r, e * r);
  }
  static V derivative(V x) {
    const V e = exp(negative_abs(x));
    const V r = V::all(1) / (V::all(1) + e);
    const V er = e * r;
    const V bounded = min(V::all(100), max(V::all(-100), x));  // beyond, e is 0, and its factor must stay finite
    return fma(bounded, er * r, select_positive(x, r, er));
  }
};

template <class V>
struct GeluTanh {
  // 0.5 (1 + tanh u) = 1 / (1 + exp(-2u)), u = sqrt(2 / pi) (x + 0.044715 x^3). With e = exp(-|2u|) and r = 1 / (1 + e)
  // it is r or e r: nothing overflows or cancels.
  static V twice_u(V x) { return x * fma(x * x, V::all(0.0713548163f), V::all(1.59576912f)); }
  static V value(V x) {
    const V e = exp(negative_abs(twice_u(x)));
    const V r = V::all(1) / (V::all(1) + e);
    return x * select_positive(x, r, e * r);
  }
  static V derivative(V x) {
    x = min(V::all(16), max(V::all(-16), x));  // beyond, it is 0 or 1, and its factors must stay finite
    const V e = exp(negative_abs(twice_u(x)));
    const V r = V::all(1) / (V::all(1) + e);
    const V er = e * r;
    const V slope = fma(x * x, V::all(0.2140644489f), V::all(1.59576912f));
    return fma(x * slope, er * r, select_positive(x, r, er));
  }
};

template <class V>
struct GeluErf {
  struct Normal {
    V below;    // Phi(x), the normal distribution
    V density;  // exp(-x^2 / 2)
  };
  // Phi(-a) = exp(-a^2 / 2) t P(t), t = 1 / (1 + 0.3 a), a = |x|; the rounding of a^2 / 2 is put back.
  static Normal normal(V x) {
    const V a = min(V::all(16), abs(x));  // beyond 13.3 exp is zero
    const V t = V::all(1) / fma(a, V::all(0.3f), V::all(1));
    V p = V::all(-0.0205899145f);
    p = fma(p, t, V::all(0.112246753f));
    p = fma(p, t, V::all(-0.227752059f));
    p = fma(p, t, V::all(0.191142983f));
    p = fma(p, t, V::all(-0.0788656424f));
    p = fma(p, t, V::all(0.0958428352f));
    p = fma(p, t, V::all(0.0785038049f));
    p = fma(p, t, V::all(0.110209634f));
    p = fma(p, t, V::all(0.119575093f));
    p = fma(p, t, V::all(0.119686511f));
    const V minus_half = a * V::all(-0.5f);
    const V exponent = a * minus_half;
    const V lost = fma(a, minus_half, V::all(0) - exponent);
    V density = exp(exponent);
    density = fma(density, lost, density);
    const V tail = density * (t * p);
    return {select_positive(x, V::all(1) - tail, tail), density};
  }
  static V value(V x) { return x * normal(x).below; }
  static V derivative(V x) {
    const Normal n = normal(x);
    const V bounded = min(V::all(16), max(V::all(-16), x));
    return fma(bounded * V::all(0.398942280f), n.density, n.below);
  }
};

}  // namespace espalier::kernels
