// A sum of squares of fp32 numbers without any rounding, so that it does not depend on the order of the numbers or on
// how they are divided: 24 bits of each, squared, are added as integers, apart for every exponent.
//
//   ExactSquares own;
//   own.add(gradient);
//   const std::vector<double> all = group.sum(own.numbers());   // exact as well
//   const double sum = ExactSquares::value(all.data());         // rounded once
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <vector>

namespace espalier::kernels {

class ExactSquares {
 public:
  // fp32, contiguous, on the CPU.
  void add(const at::Tensor& values);

  // The sum as digits of 32 bits, the lowest first, and how many infinities and NaNs there were. Numbers of several
  // sums, up to 2^20, may be added one by one: they stay integers that a double can hold.
  static constexpr size_t kNumDigits = 20, kNumNumbers = kNumDigits + 2;
  std::vector<double> numbers() const;
  // Of kNumNumbers: the nearest double; NaN or infinity where there were any.
  static double value(const double* numbers);

 private:
  static constexpr size_t kNumExponents = 256;
  std::array<unsigned __int128, kNumExponents> of_exponent_{};
  uint64_t num_nan_ = 0;
};

}  // namespace espalier::kernels
