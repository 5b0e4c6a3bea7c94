#include "convert/internal/step_tensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <random>

#include "store/run_folder.h"
#include "store/step_writer.h"

namespace espalier::convert {
namespace step_tensors_test {

using Moment = spec::StateTensor::Moment;

std::vector<float> numbers_of(const store::TensorSource& source) {
  std::string bytes;
  source.produce([&](const void* data, size_t size) { bytes.append(static_cast<const char*>(data), size); });
  std::vector<float> numbers(bytes.size() / sizeof(float));
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

// Element `at` by docs/checkpoint-format.md.
double by_the_page(const std::vector<uint8_t>& stored, int64_t at, bool has_sign) {
  const int64_t block = at / 32 * 33;
  const int scale = stored[static_cast<size_t>(block)], code = stored[static_cast<size_t>(block + 1 + at % 32)];
  const int n = has_sign ? code % 128 : code, top = has_sign ? 15 : 31;
  if (n == 0) return 0;
  return (has_sign && code >= 128 ? -1 : 1) * std::ldexp(1 + n % 8 / 8.0, scale - 127 + n / 8 - top);
}

TEST(StepTensors, MomentsAreWidenedWhateverTheyAreStoredIn) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("espalier_step_tensors_" + std::to_string(::getpid()));
  std::filesystem::remove_all(folder);
  std::mt19937 random(3);
  std::vector<uint8_t> first(7 * 66), second(7 * 66);  // matrices of [7, 64]
  for (std::vector<uint8_t>* bytes : {&first, &second})
    for (size_t at = 0; at < bytes->size(); ++at)
      (*bytes)[at] = static_cast<uint8_t>(at % 33 == 0 ? 100 + random() % 50 : random() % 256);
  std::vector<uint16_t> short_ones(33);
  for (uint16_t& one : short_ones) one = static_cast<uint16_t>(0x3C00 + random() % 0x400);
  std::vector<float> whole(33);
  for (float& one : whole) one = static_cast<float>(random());
  const std::string file = store::optimizer_file("00000");
  store::Manifest manifest;
  manifest.state.step = 3;
  store::write_step(folder, manifest,
                    {{"w.exp_avg", file, store::DType::kUInt8, {7, 66}, first.data()},
                     {"w.exp_avg_sq", file, store::DType::kUInt8, {7, 66}, second.data()},
                     {"b.exp_avg", file, store::DType::kBFloat16, {33}, short_ones.data()},
                     {"b.exp_avg_sq", file, store::DType::kFloat32, {33}, whole.data()}},
                    {});
  StepTensors tensors(folder / store::step_folder_name(3));
  // Runs that begin and end within blocks, then zeros.
  const std::vector<spec::Extent> extents = {{5, 0, 40}, {100, 40, 1}, {320, 41, 128}};
  for (const bool has_sign : {true, false}) {
    const store::TensorSource source = tensors.moments({172}, {{has_sign ? "w.exp_avg" : "w.exp_avg_sq", extents}},
                                                       has_sign ? Moment::kFirst : Moment::kSecond, /*num_zeros=*/3);
    EXPECT_EQ(source.dtype, store::DType::kFloat32);
    const std::vector<float> found = numbers_of(source);
    ASSERT_EQ(found.size(), 172U);
    for (const spec::Extent& extent : extents)
      for (int64_t at = 0; at < extent.count; ++at)
        EXPECT_EQ(found[static_cast<size_t>(extent.local_begin + at)],
                  by_the_page(has_sign ? first : second, extent.global_begin + at, has_sign));
    EXPECT_EQ(found[169] + found[170] + found[171], 0);
  }
  const std::vector<float> of_bf16 = numbers_of(tensors.moments({33}, {{"b.exp_avg", {{0, 0, 33}}}}, Moment::kFirst));
  for (size_t at = 0; at < of_bf16.size(); ++at) {
    const uint32_t bits = uint32_t{short_ones[at]} << 16;
    EXPECT_EQ(std::memcmp(&of_bf16[at], &bits, sizeof bits), 0);
  }
  EXPECT_EQ(numbers_of(tensors.moments({33}, {{"b.exp_avg_sq", {{0, 0, 33}}}}, Moment::kSecond)), whole);
  std::filesystem::remove_all(folder);
}

}  // namespace step_tensors_test
}  // namespace espalier::convert
