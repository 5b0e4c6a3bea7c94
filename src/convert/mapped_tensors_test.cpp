#include "convert/mapped_tensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace espalier::convert::mapped_tensors_test {
namespace {

// A file of bytes 0..5 as a matrix [2, 3], and the same transposed.
TEST(MappedTensors, PackedTensorsAreGivenBackAndComeAgain) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("espalier-mapped-" + std::to_string(::getpid()));
  std::ofstream(path, std::ios::binary) << std::string("\0\1\2\3\4\5", 6);
  int checks = 0;
  MappedTensors tensors(
      {{.dtype = store::DType::kUInt8, .shape = {2, 3}, .strides = {3, 1}, .file = path, .offset = 0},
       {.dtype = store::DType::kUInt8, .shape = {3, 2}, .strides = {1, 3}, .file = path, .offset = 0}},
      [&](size_t, const void*) { ++checks; });
  const auto bytes = [](const SourceTensor& tensor) { return std::string(static_cast<const char*>(tensor.data), 6); };
  const std::string transposed("\0\3\1\4\2\5", 6);
  std::weak_ptr<const void> memory;
  {
    const SourceTensor first = tensors.at(1);
    memory = first.owner;
    tensors.release(1);
    EXPECT_EQ(bytes(first), transposed);  // still held here
  }
  EXPECT_TRUE(memory.expired());
  EXPECT_EQ(bytes(tensors.at(1)), transposed);
  EXPECT_EQ(bytes(tensors.at(0)), std::string("\0\1\2\3\4\5", 6));
  tensors.release(0);
  EXPECT_EQ(bytes(tensors.at(0)), std::string("\0\1\2\3\4\5", 6));
  EXPECT_EQ(checks, 2);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace espalier::convert::mapped_tensors_test
