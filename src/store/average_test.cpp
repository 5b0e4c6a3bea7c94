#include "store/average.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <random>

#include "base/error.h"
#include "store/run_folder.h"
#include "store/step_reader.h"
#include "store/step_writer.h"

namespace espalier::store {
namespace average_test {

namespace fs = std::filesystem;

class Average : public testing::Test {
 protected:
  void SetUp() override { fs::remove_all(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  struct Saved {
    int64_t step = 0;
    std::vector<float> master;  // of "a", [33]; with_master: bf16 weights next to it that say something else
    bool with_master = true;
    std::vector<uint16_t> half = {0x3c00, 0x0001, 0xc000, 0x7bff, 0x8000, 0x03ff, 0x5555};  // "b", fp16 [7]
    std::string family = "gpt";
    int64_t rows = 1;
  };
  fs::path save(const std::string& run, const Saved& saved) const {
    Manifest manifest;
    manifest.model = {.family = saved.family,
                      .compute_type = "bf16",
                      .vocab_size = saved.rows,
                      .padded_vocab_size = saved.rows,
                      .num_parameters = 40};
    manifest.state.step = saved.step;
    manifest.config = "[training]\n";
    const std::vector<uint16_t> rubbish(saved.master.size(), 0x4000);
    const auto size = static_cast<int64_t>(saved.master.size());
    std::vector<TensorData> tensors;
    if (saved.with_master) {
      tensors.push_back({"a", weights_file("00000"), DType::kBFloat16, {size}, rubbish.data()});
      tensors.push_back({"a.master", optimizer_file("00000"), DType::kFloat32, {size}, saved.master.data()});
    } else {
      tensors.push_back({"a", weights_file("00000"), DType::kFloat32, {size}, saved.master.data()});
    }
    tensors.push_back({"b", weights_file("final"), DType::kFloat16, {7}, saved.half.data()});
    fs::create_directories(folder_ / run);
    write_step(folder_ / run, manifest, tensors, {{"tokenizer/x", "y"}});
    return folder_ / run / step_folder_name(saved.step);
  }
  std::vector<float> numbers(int seed) const {
    std::mt19937 generator(static_cast<uint32_t>(seed));
    std::normal_distribution<float> normal;
    std::vector<float> values(33);
    for (float& value : values) value = normal(generator);
    return values;
  }
  static std::vector<float> read(const fs::path& step, const std::string& name) {
    StepReader reader(step);
    const StoredTensor* const tensor = reader.manifest().find(name);
    EXPECT_EQ(tensor->dtype, DType::kFloat32);
    std::vector<float> values(static_cast<size_t>(tensor->num_elements()));
    for (size_t block = 0; block < tensor->blocks.size(); ++block)
      reader.read_block(*tensor, block, reinterpret_cast<char*>(values.data()) + tensor->blocks[block].offset);
    return values;
  }

  const fs::path folder_ = fs::temp_directory_path() / concat("espalier_average_", ::getpid());
};

TEST_F(Average, IsTheMeanOfTheMasterWeightsInFp32) {
  const std::vector<float> a = numbers(1), b = numbers(2), c = numbers(3);
  const fs::path written =
      write_average({.step_folders = {save("a", {.step = 5, .master = a}), save("b", {.step = 9, .master = b}),
                                      save("c", {.step = 7, .master = c, .with_master = false})},
                     .weights = {},
                     .run_folder = folder_ / "mean"});
  EXPECT_EQ(written, folder_ / "mean" / "step_00000009");
  EXPECT_TRUE(verify_step(written, 1, false).empty());
  const Manifest manifest = read_manifest(written);
  EXPECT_EQ(manifest.model.compute_type, "fp32");
  EXPECT_EQ(manifest.tensors.size(), 2U) << "no optimizer state";
  EXPECT_EQ(StepReader(written).read_extra_file("tokenizer/x"), "y");
  const std::vector<float> found = read(written, "a");
  for (size_t i = 0; i < found.size(); ++i) {
    volatile float sum = a[i];  // as numpy.mean over the first axis of three: added one after the other, then divided
    sum = sum + b[i];
    sum = sum + c[i];
    EXPECT_EQ(std::bit_cast<uint32_t>(found[i]), std::bit_cast<uint32_t>(static_cast<float>(sum) / 3.0f)) << i;
  }
  // fp16: 1, the smallest number, -2, the largest, -0, the largest subnormal, 85.3125.
  const std::vector<float> halves = read(written, "b");
  EXPECT_THAT(halves, testing::ElementsAre(1.0f, 0x1p-24f, -2.0f, 65504.0f, 0.0f, 1023 * 0x1p-24f, 85.3125f));
}

TEST_F(Average, WithWeightsIsRoundedOnce) {
  const std::vector<float> a = numbers(4), b = numbers(5);
  const fs::path written =
      write_average({.step_folders = {save("a", {.step = 5, .master = a}), save("b", {.step = 5, .master = b})},
                     .weights = {1, 3},
                     .run_folder = folder_ / "mean"});
  const std::vector<float> found = read(written, "a");
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_EQ(found[i], static_cast<float>(0.25 * static_cast<double>(a[i]) + 0.75 * static_cast<double>(b[i])));
}

TEST_F(Average, OfOtherModelsIsRefusedWithEveryReason) {
  const fs::path good = save("a", {.step = 5, .master = numbers(1)});
  const auto refusal = [&](const Saved& other) -> std::string {
    fs::remove_all(folder_ / "b");
    const fs::path second = save("b", other);
    try {
      write_average({.step_folders = {good, second}, .weights = {}, .run_folder = folder_ / "mean"});
    } catch (const UserError& error) {
      EXPECT_FALSE(fs::exists(folder_ / "mean"));
      return error.what();
    }
    return "taken";
  };
  EXPECT_THAT(refusal({.step = 4, .master = {1, 2}}), testing::HasSubstr("a has another shape than in"));
  EXPECT_THAT(refusal({.step = 4, .master = numbers(1), .family = "bert"}),
              testing::HasSubstr("is another model (family 'bert', 1 rows of words)"));
  EXPECT_THAT(refusal({.step = 4, .master = numbers(1), .rows = 2}), testing::HasSubstr("2 rows of words"));
}

}  // namespace average_test
}  // namespace espalier::store
