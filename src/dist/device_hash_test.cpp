#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

#include "dist/internal/device_hash.h"

namespace espalier::dist {
namespace device_hash_test {

int64_t shifted(int64_t number, int by) { return number ^ (number >> by); }
int64_t times(int64_t a, uint64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) * b); }

// As a plain loop over bytes.
int64_t plain_hash(const at::Tensor& values) {
  const auto* const bytes = static_cast<const uint8_t*>(values.const_data_ptr());
  uint64_t sum = 0;
  for (size_t begin = 0; begin < values.nbytes(); begin += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + begin, std::min<size_t>(8, values.nbytes() - begin));
    auto mixed = static_cast<int64_t>(word + (begin / 8 + 1) * 0x9E3779B97F4A7C15u);
    mixed = times(shifted(mixed, 30), 0xBF58476D1CE4E5B9u);
    mixed = times(shifted(mixed, 27), 0x94D049BB133111EBu);
    sum += static_cast<uint64_t>(shifted(mixed, 31));
  }
  return static_cast<int64_t>(sum);
}

int64_t hash(const at::Tensor& values) { return device_hash(values).item<int64_t>(); }

TEST(DeviceHash, IsThatOfAPlainLoop) {
  const at::Tensor many = at::arange(3'000'001, at::kFloat).sin();  // several pieces, and half a word at the end
  for (const at::Tensor& values :
       {many, many.to(at::kBFloat16).view({3000001, 1}), at::arange(7, at::kByte), at::full({}, -3.5, at::kDouble),
        at::arange(12, at::kLong).view({3, 4}), at::empty({0, 4})})
    EXPECT_EQ(hash(values), plain_hash(values)) << values.sizes();
}

// Pieces of a flat buffer begin anywhere.
TEST(DeviceHash, DoesNotDependOnWhereTheTensorBegins) {
  const at::Tensor flat = at::arange(1001, at::kFloat).to(at::kBFloat16);
  for (const int64_t begin : {1, 2, 3, 5}) {
    const at::Tensor piece = flat.narrow(0, begin, 700);
    EXPECT_EQ(hash(piece), hash(piece.clone())) << begin;
  }
}

TEST(DeviceHash, SeesEveryBitAndTheOrder) {
  const at::Tensor values = at::arange(33, at::kShort) * 1000;
  const int64_t before = hash(values);
  for (int64_t at = 0; at < values.numel(); ++at)
    for (int bit = 0; bit < 16; ++bit) {
      const at::Tensor changed = values.clone();
      changed.mutable_data_ptr<int16_t>()[at] ^= static_cast<int16_t>(1 << bit);
      EXPECT_NE(hash(changed), before) << "bit " << bit << " of element " << at;
    }
  const at::Tensor exchanged = values.clone();
  exchanged.narrow(0, 0, 4).copy_(values.narrow(0, 4, 4));
  exchanged.narrow(0, 4, 4).copy_(values.narrow(0, 0, 4));
  EXPECT_NE(hash(exchanged), before);
}

}  // namespace device_hash_test
}  // namespace espalier::dist
