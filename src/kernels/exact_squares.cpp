#include "kernels/exact_squares.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>

#include "base/error.h"
#include "base/work_profile.h"

namespace espalier::kernels {
namespace {

constexpr int64_t kNumbersAtOnce = int64_t{1} << 16;  // a square has 48 bits: so many fit in 64
constexpr uint32_t kFractionBits = 23, kFraction = (1u << kFractionBits) - 1;
constexpr size_t kNotFiniteExponent = 255, kTables = 4, kDigitBits = 32;
constexpr int kLowestExponent = -298;  // of the square of the smallest number

// Sums of a block; one number after the other goes to another table, so that none waits for the one before.
struct BlockOfSquares {
  uint64_t sums[kTables][256] = {};
  uint64_t num_nan = 0;

  void add(uint32_t bits, size_t table) {
    const uint32_t exponent = bits >> kFractionBits & 255;
    const uint64_t digits = (bits & kFraction) | (exponent == 0 ? 0u : kFraction + 1);
    sums[table][exponent] += digits * digits;
    num_nan += exponent == kNotFiniteExponent && (bits & kFraction) != 0;
  }
};

// Adds `sum` times 2^shift.
void add_shifted(unsigned __int128 sum, size_t shift, std::array<uint64_t, ExactSquares::kNumDigits>& digits) {
  const size_t first = shift / kDigitBits, within = shift % kDigitBits;
  // The lowest digit takes what `within` leaves of it.
  unsigned __int128 rest = sum;
  uint64_t carry = 0;
  for (size_t at = first; rest != 0 || carry != 0; ++at) {
    const size_t width = at == first ? kDigitBits - within : kDigitBits;
    const uint64_t low = static_cast<uint64_t>(rest) & ((uint64_t{1} << width) - 1);
    rest >>= width;
    const uint64_t total = digits[at] + carry + (at == first ? low << within : low);
    digits[at] = total & 0xFFFFFFFFu;
    carry = total >> kDigitBits;
  }
}

}  // namespace

void ExactSquares::add(const at::Tensor& values) {
  const WorkSpan span(Work::kOptimizer, "norm");
  ESPALIER_CHECK(values.is_cpu() && values.scalar_type() == at::kFloat && values.is_contiguous(), "exact squares of ",
                 values.scalar_type(), " ", values.sizes());
  const float* const data = values.const_data_ptr<float>();
  const int64_t count = values.numel();
  std::mutex mutex;
  at::parallel_for(0, (count + kNumbersAtOnce - 1) / kNumbersAtOnce, 1, [&](int64_t first, int64_t last) {
    std::array<unsigned __int128, kNumExponents> own{};
    uint64_t num_nan = 0;
    for (int64_t number = first; number < last; ++number) {
      BlockOfSquares block;
      const int64_t begin = number * kNumbersAtOnce, end = std::min(count, begin + kNumbersAtOnce);
      int64_t at = begin;
      uint32_t bits[kTables];
      for (; at + static_cast<int64_t>(kTables) <= end; at += kTables) {
        std::memcpy(bits, data + at, sizeof bits);
        for (size_t table = 0; table < kTables; ++table) block.add(bits[table], table);
      }
      for (; at < end; ++at) {
        std::memcpy(bits, data + at, sizeof(float));
        block.add(bits[0], 0);
      }
      for (const auto& table : block.sums)
        for (size_t exponent = 0; exponent < kNumExponents; ++exponent) own[exponent] += table[exponent];
      num_nan += block.num_nan;
    }
    const std::lock_guard lock(mutex);
    for (size_t exponent = 0; exponent < kNumExponents; ++exponent) of_exponent_[exponent] += own[exponent];
    num_nan_ += num_nan;
  });
}

std::vector<double> ExactSquares::numbers() const {
  std::array<uint64_t, kNumDigits> digits{};
  for (size_t exponent = 0; exponent < kNotFiniteExponent; ++exponent)
    add_shifted(of_exponent_[exponent], 2 * (std::max<size_t>(exponent, 1) - 1), digits);
  std::vector<double> numbers;
  for (const uint64_t digit : digits) numbers.push_back(static_cast<double>(digit));
  numbers.push_back(of_exponent_[kNotFiniteExponent] != 0 ? 1 : 0);
  numbers.push_back(static_cast<double>(num_nan_));
  return numbers;
}

double ExactSquares::value(const double* numbers) {
  if (numbers[kNumDigits + 1] > 0) return std::numeric_limits<double>::quiet_NaN();
  if (numbers[kNumDigits] > 0) return std::numeric_limits<double>::infinity();
  std::array<uint64_t, kNumDigits + 1> digits{};
  uint64_t carry = 0;
  for (size_t at = 0; at <= kNumDigits; ++at) {
    const uint64_t total = carry + (at < kNumDigits ? static_cast<uint64_t>(numbers[at]) : 0);
    digits[at] = total & 0xFFFFFFFFu;
    carry = total >> kDigitBits;
  }
  size_t top = kNumDigits;
  while (top > 0 && digits[top] == 0) --top;
  // The highest 65 bits or more, and in the lowest of them whether anything is below: a double is the nearest to both.
  const size_t lowest = top < 2 ? 0 : top - 2;
  unsigned __int128 highest = 0;
  for (size_t at = top + 1; at-- > lowest;) highest = highest << kDigitBits | digits[at];
  for (size_t at = 0; at < lowest; ++at)
    if (digits[at] != 0) highest |= 1;
  return std::ldexp(static_cast<double>(highest), kLowestExponent + static_cast<int>(lowest * kDigitBits));
}

}  // namespace espalier::kernels
