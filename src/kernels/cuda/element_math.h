// The arithmetic of single elements, written once for the GPU's kernels and for the host, where element_math_test.cpp
// compares it with the CPU's kernels. Fused multiply-adds are asked for by name, as there.
//
// Plain header: fixed-width integers and floats.
#pragma once

#include <cmath>
#include <cstdint>

#include "spec/anywhere.h"

namespace espalier::cuda {

struct PhiloxWords {
  uint32_t word[4];
};

// tensor/rng.h's philox4x32.
ESPALIER_ANYWHERE PhiloxWords philox(uint32_t key0, uint32_t key1, PhiloxWords counter) {
  uint32_t* const x = counter.word;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53u} * x[0], product1 = uint64_t{0xCD9E8D57u} * x[2];
    const uint32_t x0 = static_cast<uint32_t>(product1 >> 32) ^ x[1] ^ key0;
    const uint32_t x2 = static_cast<uint32_t>(product0 >> 32) ^ x[3] ^ key1;
    x[0] = x0;
    x[1] = static_cast<uint32_t>(product1);
    x[2] = x2;
    x[3] = static_cast<uint32_t>(product0);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

// The random word of one element: kernels/dropout.h says what the counter is made of.
struct MaskPlace {
  uint32_t position, head;
  uint64_t sample;
};
// The words of the features 4 group .. 4 group + 3.
ESPALIER_ANYWHERE PhiloxWords mask_words(uint32_t key0, uint32_t key1, const MaskPlace& place, uint32_t group) {
  const uint32_t head_and_sample = place.head + (static_cast<uint32_t>(place.sample >> 32) << 16);
  return philox(key0, key1, {{group, place.position, head_and_sample, static_cast<uint32_t>(place.sample)}});
}
ESPALIER_ANYWHERE uint32_t mask_word(uint32_t key0, uint32_t key1, const MaskPlace& place, uint32_t feature) {
  return mask_words(key0, key1, place, feature / 4).word[feature % 4];
}

// 1 / x for x in [1, 2]. On the GPU without the branch for numbers that are not normal which a division has: to the
// nearest or its neighbour.
ESPALIER_ANYWHERE float reciprocal(float x) {
#ifdef __CUDA_ARCH__
  float estimate;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(estimate) : "f"(x));
  return fmaf(fmaf(-x, estimate, 1.0f), estimate, estimate);
#else
  return 1 / x;
#endif
}

// 0.5 (1 + tanh u) = 1 / (1 + exp(-2u)), u = sqrt(2 / pi) (x + 0.044715 x^3), from exp of what is not positive.
struct GeluTanh {
  ESPALIER_ANYWHERE static float twice_u(float x) { return x * fmaf(x * x, 0.0713548163f, 1.59576912f); }
  ESPALIER_ANYWHERE static float value(float x) {
    const float e = expf(-fabsf(twice_u(x))), r = reciprocal(1 + e);
    return x * (x > 0 ? r : e * r);
  }
  ESPALIER_ANYWHERE static float derivative(float x) {
    x = x > 16 ? 16 : x < -16 ? -16 : x;  // beyond, it is 0 or 1, and its factors must stay finite
    const float e = expf(-fabsf(twice_u(x))), r = reciprocal(1 + e);
    const float slope = fmaf(x * x, 0.2140644489f, 1.59576912f);
    return fmaf(x * slope, e * r * r, x > 0 ? r : e * r);
  }
};

// x Phi(x) and Phi(x) + x phi(x); erfc keeps the digits of the tail.
struct GeluErf {
  ESPALIER_ANYWHERE static float below(float x) { return 0.5f * erfcf(x * -0.707106781f); }
  ESPALIER_ANYWHERE static float value(float x) { return x < -14 ? 0 * x : x * below(x); }
  ESPALIER_ANYWHERE static float derivative(float x) {
    const float bounded = x > 16 ? 16 : x < -16 ? -16 : x;
    return fmaf(bounded * 0.398942280f, expf(-0.5f * bounded * bounded), below(bounded));
  }
};

struct Silu {
  ESPALIER_ANYWHERE static float sigmoid(float x) {
    const float e = expf(-fabsf(x)), r = reciprocal(1 + e);
    return x > 0 ? r : e * r;
  }
  ESPALIER_ANYWHERE static float value(float x) { return x * sigmoid(x); }
  ESPALIER_ANYWHERE static float derivative(float x) {
    const float s = sigmoid(x);
    return s * fmaf(x, 1 - s, 1);
  }
};

// NaN passes through value() of these.
struct Relu {
  ESPALIER_ANYWHERE static float value(float x) { return x < 0 ? 0 : x; }
  ESPALIER_ANYWHERE static float derivative(float x) { return x > 0 ? 1 : 0; }
};

struct SquaredRelu {
  ESPALIER_ANYWHERE static float value(float x) { return Relu::value(x) * Relu::value(x); }
  ESPALIER_ANYWHERE static float derivative(float x) { return 2 * Relu::value(x); }
};

struct Identity {
  ESPALIER_ANYWHERE static float value(float x) { return x; }
  ESPALIER_ANYWHERE static float derivative(float) { return 1; }
};

// One lane of what the optimizers compute with (spec/optimizers/), where the CPU has sixteen. In a namespace of its
// own: its max and min would hide CUDA's.
namespace lane {
struct Lane {
  float x;
  ESPALIER_ANYWHERE static Lane all(float value) { return {value}; }
};
ESPALIER_ANYWHERE Lane operator+(Lane a, Lane b) { return {a.x + b.x}; }
ESPALIER_ANYWHERE Lane operator-(Lane a, Lane b) { return {a.x - b.x}; }
ESPALIER_ANYWHERE Lane operator*(Lane a, Lane b) { return {a.x * b.x}; }
ESPALIER_ANYWHERE Lane operator/(Lane a, Lane b) { return {a.x / b.x}; }
ESPALIER_ANYWHERE Lane fma(Lane a, Lane b, Lane c) { return {fmaf(a.x, b.x, c.x)}; }
ESPALIER_ANYWHERE Lane sqrt(Lane a) { return {sqrtf(a.x)}; }
// b when either is NaN.
ESPALIER_ANYWHERE Lane max(Lane a, Lane b) { return {a.x > b.x ? a.x : b.x}; }
ESPALIER_ANYWHERE Lane min(Lane a, Lane b) { return {a.x < b.x ? a.x : b.x}; }
ESPALIER_ANYWHERE Lane select_positive(Lane x, Lane yes, Lane no) { return {x.x > 0 ? yes.x : no.x}; }
}  // namespace lane
using lane::Lane;

// Exponents of a softmax are to base 2.
inline constexpr float kLog2E = 1.44269504088896340736f;

// A running softmax sum: of 2^(x - largest) over what was added so far.
struct OnlineSoftmax {
  float largest = -INFINITY;
  float sum = 0;

  // What everything added before has to be multiplied by when `in_tile` is the largest of the next scores.
  ESPALIER_ANYWHERE float raise(float in_tile) {
    const float next = in_tile > largest ? in_tile : largest;
    const float factor = largest == -INFINITY ? 0 : exp2f(largest - next);
    largest = next;
    sum *= factor;
    return factor;
  }
  ESPALIER_ANYWHERE float probability(float x) const { return x == -INFINITY ? 0 : exp2f(x - largest); }
  ESPALIER_ANYWHERE float log_sum() const { return largest + log2f(sum); }
};

}  // namespace espalier::cuda
