#include "tensor/block_copy.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>

namespace espalier::tensor {
namespace block_copy_test {

TEST(BlockCopy, KeepsTypesShapesAndValues) {
  const std::vector<at::Tensor> on_host = {
      at::arange(21, at::kLong).view({3, 7}),   at::arange(5, at::kFloat) / 4, at::empty({0, 3}, at::kInt),
      at::arange(6, at::kInt).view({2, 3}).t(), at::ones({3}, at::kBool),      at::full({}, 2.5, at::kDouble)};
  const std::vector<at::Tensor> copies = copy_as_block(on_host, at::kCPU);
  ASSERT_EQ(copies.size(), on_host.size());
  for (size_t i = 0; i < copies.size(); ++i) {
    EXPECT_EQ(copies[i].scalar_type(), on_host[i].scalar_type());
    EXPECT_TRUE(copies[i].is_contiguous());
    EXPECT_TRUE(at::equal(copies[i], on_host[i])) << copies[i] << on_host[i];
  }
}

TEST(BlockCopy, IsOneBlockInWhichEveryTensorIsAligned) {
  const std::vector<at::Tensor> copies =
      copy_as_block({at::ones({3}, at::kByte), at::ones({70}, at::kLong), at::ones({1}, at::kFloat)}, at::kCPU);
  const auto* const begin = static_cast<const uint8_t*>(copies[0].const_data_ptr());
  for (const at::Tensor& copy : copies) {
    EXPECT_EQ(copy.storage().unsafeGetStorageImpl(), copies[0].storage().unsafeGetStorageImpl());
    EXPECT_EQ((static_cast<const uint8_t*>(copy.const_data_ptr()) - begin) % 256, 0);
  }
}

TEST(BlockCopy, DoesNotFollowLaterChanges) {
  const at::Tensor values = at::zeros({4}, at::kLong);
  const at::Tensor copy = copy_as_block({values}, at::kCPU)[0];
  values.fill_(7);
  EXPECT_TRUE(at::equal(copy, at::zeros({4}, at::kLong)));
}

TEST(BlockCopy, MayHaveNothingToCopy) { EXPECT_TRUE(copy_as_block({}, at::kCPU).empty()); }

}  // namespace block_copy_test
}  // namespace espalier::tensor
