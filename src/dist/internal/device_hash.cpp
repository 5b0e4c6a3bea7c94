#include "dist/internal/device_hash.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/error.h"

namespace espalier::dist {
namespace {

constexpr int64_t kWordBytes = 8;
constexpr int64_t kWordsAtOnce = 1 << 20;

// Odd, so that multiplying is a bijection: the 64 bits of the golden ratio, and the finalizer of SplitMix64.
constexpr auto kOfPlace = std::bit_cast<int64_t>(uint64_t{0x9E3779B97F4A7C15});
constexpr auto kFirst = std::bit_cast<int64_t>(uint64_t{0xBF58476D1CE4E5B9});
constexpr auto kSecond = std::bit_cast<int64_t>(uint64_t{0x94D049BB133111EB});

// `bytes`: whole words that begin anywhere.
at::Tensor words_of(const at::Tensor& bytes) {
  return (bytes.storage_offset() % kWordBytes == 0 ? bytes : bytes.clone()).view(at::kLong);
}

at::Tensor sum_of_words(const at::Tensor& words, int64_t first_place) {
  const at::Tensor places = at::arange(first_place + 1, first_place + 1 + words.numel(), words.options());
  const at::Tensor mixed = places.mul_(kOfPlace).add_(words);
  mixed.bitwise_xor_(mixed.bitwise_right_shift(30)).mul_(kFirst);
  mixed.bitwise_xor_(mixed.bitwise_right_shift(27)).mul_(kSecond);
  mixed.bitwise_xor_(mixed.bitwise_right_shift(31));
  return mixed.sum();
}

}  // namespace

at::Tensor device_hash(const at::Tensor& values) {
  ESPALIER_CHECK(values.is_contiguous(), values.strides());
  const at::NoGradGuard no_grad;
  const at::Tensor sum = at::zeros({}, values.options().dtype(at::kLong).requires_grad(false));
  if (values.numel() == 0) return sum;
  const at::Tensor bytes = values.detach().view({-1}).view(at::kByte);
  const int64_t size = bytes.numel(), num_words = size / kWordBytes;
  for (int64_t first = 0; first < num_words; first += kWordsAtOnce) {
    const int64_t count = std::min(kWordsAtOnce, num_words - first);
    sum.add_(sum_of_words(words_of(bytes.narrow(0, first * kWordBytes, count * kWordBytes)), first));
  }
  if (const int64_t rest = size % kWordBytes; rest > 0) {
    const at::Tensor last = at::zeros({kWordBytes}, bytes.options());
    last.narrow(0, 0, rest).copy_(bytes.narrow(0, size - rest, rest));
    sum.add_(sum_of_words(last.view(at::kLong), num_words));
  }
  return sum;
}

}  // namespace espalier::dist
