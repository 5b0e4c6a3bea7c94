// For the tests of this library: a folder per test, a small checkpoint, the text of an error, damage to files.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "store/step_writer.h"

namespace espalier::store::test {

class TestFolder : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              ("espalier_store_" + std::to_string(::getpid()) + "_" + info->test_suite_name() + "_" + info->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
};

inline std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

inline void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// In place: some file systems bring a file that is written anew to the disk at once.
inline void flip_bit(const std::filesystem::path& path, int64_t byte, int bit) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(byte);
  const int before = file.get();
  ASSERT_TRUE(file.good()) << path << " has no byte " << byte;
  file.seekp(byte);
  file.put(static_cast<char>(before ^ (1 << bit)));
  file.close();
  ASSERT_TRUE(file.good()) << path;
}

// A checkpoint's worth of tensors: two files of weights, one of optimizer state, awkward sizes, an empty one, bytes
// from `seed`.
class SmallCheckpoint {
 public:
  explicit SmallCheckpoint(uint32_t seed = 1, int64_t rows = 33) {
    const std::string layer = weights_file("00000"), last = weights_file("final"), optimizer = optimizer_file("00000");
    add("layers.0.mlp.weight", layer, DType::kBFloat16, {rows, 7}, seed);
    add("layers.0.mlp.bias", layer, DType::kBFloat16, {7}, seed + 1);
    add("final_layernorm.weight", last, DType::kBFloat16, {}, seed + 2);
    add("nothing", last, DType::kBFloat16, {0, 3}, seed + 3);
    add("layers.0.mlp.weight.master", optimizer, DType::kFloat32, {rows, 7}, seed + 4);
    add("layers.0.mlp.weight.exp_avg", optimizer, DType::kFloat32, {rows, 7}, seed + 5);
  }

  void save(const std::filesystem::path& run_folder, int64_t step) const {
    Manifest manifest;
    manifest.state.step = step;
    manifest.config = "seed = 1234\n";
    write_step(run_folder, manifest, tensors_, {{"tokenizer/vocab.json", "{\"a\": 0}"}});
  }
  const std::vector<TensorData>& tensors() const { return tensors_; }
  std::string& bytes(size_t index) { return contents_[index]; }

 private:
  void add(const std::string& name, const std::string& file, DType dtype, std::vector<int64_t> shape, uint32_t seed) {
    int64_t bytes = size_bytes(dtype);
    for (const int64_t size : shape) bytes *= size;
    std::mt19937 random(seed);
    std::string content(static_cast<size_t>(bytes), '\0');
    for (char& byte : content) byte = static_cast<char>(random());
    contents_.push_back(std::move(content));
    tensors_.push_back({.name = name, .file = file, .dtype = dtype, .shape = std::move(shape), .data = nullptr});
    for (size_t index = 0; index < tensors_.size(); ++index) tensors_[index].data = contents_[index].data();
  }

  std::vector<std::string> contents_;
  std::vector<TensorData> tensors_;
};

// The checkpoint cut into blocks of `block_bytes`; rank r writes blocks r, r + count, ... of them all.
inline StepContent content_of(const SmallCheckpoint& checkpoint, int64_t step, int64_t block_bytes,
                              const Writers& writers) {
  StepContent content;
  content.manifest.state.step = step;
  content.manifest.config = "seed = 1234\n";
  content.extra_files = {{"tokenizer/vocab.json", "{\"a\": 0}"}};
  int64_t number = 0;
  for (const TensorData& tensor : checkpoint.tensors()) {
    content.tensors.push_back({tensor.name, tensor.file, tensor.dtype, tensor.shape});
    const int64_t bytes = content.tensors.back().num_bytes();
    for (int64_t offset = 0; offset < bytes; offset += block_bytes)
      if (number++ % writers.count == writers.rank)
        content.blocks.push_back(
            {.tensor = content.tensors.size() - 1, .offset = offset, .bytes = std::min(block_bytes, bytes - offset)});
  }
  content.make = [tensors = checkpoint.tensors()](size_t tensor, int64_t offset, int64_t bytes, void* destination) {
    std::memcpy(destination, static_cast<const uint8_t*>(tensors[tensor].data) + offset, static_cast<size_t>(bytes));
  };
  return content;
}

}  // namespace espalier::store::test
