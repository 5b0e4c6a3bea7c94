// The two blocks through which a save reads a device, with the CPU as the device.
#include "ckpt/device_reader.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace espalier::ckpt {
namespace device_reader_test {

TEST(DeviceReader, BringsEveryByteWhateverTheBlockSize) {
  std::vector<uint8_t> source(1009);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<uint8_t>(i * i % 251);
  for (const int64_t block : {1, 7, 64, 336, 337, 1009, 5000}) {
    DeviceReader reader(at::kCPU, block);
    for (const int64_t bytes : {0, 1, 7, 64, 65, 1000}) {
      std::vector<uint8_t> found(source.size(), 255);
      reader.read(source.data() + 9, bytes, found.data());
      const std::vector<uint8_t> wanted(source.begin() + 9, source.begin() + 9 + bytes);
      EXPECT_EQ(std::vector<uint8_t>(found.begin(), found.begin() + bytes), wanted) << block << " " << bytes;
      EXPECT_EQ(found[static_cast<size_t>(bytes)], 255) << "a byte too many, blocks of " << block;
    }
  }
}

}  // namespace device_reader_test
}  // namespace espalier::ckpt
