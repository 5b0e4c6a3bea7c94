// Loading parts: which blocks are read, what is refused, what damage does.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "ckpt/loader.h"
#include "ckpt/writer.h"
#include "store/run_folder.h"

namespace part_test {

namespace fs = std::filesystem;
using namespace espalier;
using ckpt::CheckpointWriter;
using ckpt::LoadedCheckpoint;
using ckpt::TensorPart;
using Extents = std::vector<spec::Extent>;

// A checkpoint of "w" (33 rows of 7 floats 0, 1, 2, ...) and "b", in blocks of 100 bytes: 25 elements.
class Parts : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() / concat("espalier_parts_", ::getpid(), "_", info->name());
    fs::remove_all(folder_);
    CheckpointWriter writer(folder_, {}, dist::Group(), /*block_bytes=*/100);
    store::Manifest manifest;
    manifest.state.step = 1;
    writer.save(manifest, {{"w", store::weights_file("00000"), at::arange(231, at::kFloat).view({33, 7})},
                           {"b", store::weights_file("00000"), at::arange(7, at::kFloat)}});
    writer.wait();
    step_ = folder_ / "step_00000001";
  }
  void TearDown() override { fs::remove_all(folder_); }

  static std::string error_of(const std::function<void()>& action) {
    try {
      action();
    } catch (const UserError& error) {
      return error.what();
    }
    return "no error";
  }

  fs::path folder_, step_;
};

// Elements 30 to 60 are in blocks 1 (25 to 50) and 2 (50 to 75); 225 to 231 in the last, which has 6 elements.
TEST_F(Parts, OnlyTheBlocksThatAPartTouchesAreReadEachOnce) {
  LoadedCheckpoint checkpoint(step_);
  const at::Tensor part = at::empty({36}, at::kFloat);
  checkpoint.load({{"w", part, TensorPart{{33, 7}, {{30, 0, 30}, {225, 30, 6}}}}}, LoadedCheckpoint::Part::kSome);
  for (int64_t i = 0; i < 36; ++i)
    EXPECT_EQ(part.const_data_ptr<float>()[i], static_cast<float>(i < 30 ? 30 + i : 225 + i - 30));
  EXPECT_EQ(checkpoint.bytes_read(), 100 + 100 + 24);

  // Two parts in one block: still read once.
  LoadedCheckpoint again(step_);
  const at::Tensor first = at::empty({2}, at::kFloat), second = at::empty({3}, at::kFloat);
  again.load({{"w", first, TensorPart{{33, 7}, {{4, 0, 2}}}}, {"w", second, TensorPart{{33, 7}, {{5, 0, 3}}}}},
             LoadedCheckpoint::Part::kSome);
  EXPECT_EQ(again.bytes_read(), 100);
  EXPECT_EQ(first.const_data_ptr<float>()[1], 5);
  EXPECT_EQ(second.const_data_ptr<float>()[2], 7);

  EXPECT_TRUE(at::equal(again.read("w", {{228, 0, 3}, {0, 3, 1}}), at::tensor({228.0f, 229.0f, 230.0f, 0.0f})));
  EXPECT_EQ(again.read("w", {}).numel(), 0);
}

TEST_F(Parts, ARankThatNeedsNothingReadsNothing) {
  LoadedCheckpoint checkpoint(step_);
  checkpoint.load({{"w", at::empty({0}, at::kFloat), TensorPart{{33, 7}, {}}}}, LoadedCheckpoint::Part::kAll,
                  {"w", "b"});
  EXPECT_EQ(checkpoint.bytes_read(), 0);
}

// Missing and unused are decided by what all ranks hold, so that every rank sees the same.
TEST_F(Parts, NamesAreJudgedByTheLayoutAsAWhole) {
  LoadedCheckpoint checkpoint(step_);
  const ckpt::TensorRequest own{"b", at::empty({7}, at::kFloat)};
  EXPECT_EQ(error_of([&] { checkpoint.load({own}, LoadedCheckpoint::Part::kAll); }),
            "'w' (weights-00000.safetensors) is in checkpoint step_00000001 and has no place in this model");
  EXPECT_EQ(error_of([&] { checkpoint.load({own}, LoadedCheckpoint::Part::kAll, {"w", "b"}); }), "no error");
  EXPECT_EQ(error_of([&] {
              checkpoint.load({own}, LoadedCheckpoint::Part::kAll, {"w", "b", "held_elsewhere"});
            }),
            "checkpoint step_00000001 has no 'held_elsewhere'");
  EXPECT_EQ(error_of([&] { checkpoint.load({own}, LoadedCheckpoint::Part::kAll, {"b"}); }),
            "'w' (weights-00000.safetensors) is in checkpoint step_00000001 and has no place in this model");
}

TEST_F(Parts, ThePartOfAnotherShapeOrTypeIsRefused) {
  LoadedCheckpoint checkpoint(step_);
  EXPECT_EQ(error_of([&] {
              checkpoint.load({{"w", at::empty({7}, at::kFloat), TensorPart{{40, 7}, {{0, 0, 7}}}}},
                              LoadedCheckpoint::Part::kSome);
            }),
            "tensor 'w': this run needs F32 [40, 7], weights-00000.safetensors has F32 [33, 7]");
  EXPECT_EQ(error_of([&] {
              checkpoint.load({{"w", at::empty({7}, at::kHalf), TensorPart{{33, 7}, {{0, 0, 7}}}}},
                              LoadedCheckpoint::Part::kSome);
            }),
            "tensor 'w': this run needs F16 [33, 7], weights-00000.safetensors has F32 [33, 7]");
  const TensorPart short_part{{33, 7}, {{0, 0, 7}}}, outside{{33, 7}, {{230, 0, 2}}};
  EXPECT_THROW(ckpt::part_of("w", at::empty({8}, at::kFloat), short_part), InternalError);
  EXPECT_THROW(ckpt::part_of("w", at::empty({2}, at::kFloat), outside), InternalError);
}

TEST_F(Parts, DamageStopsThoseWhoReadTheBlockAndNamesIt) {
  const fs::path file = step_ / store::weights_file("00000");
  std::string content = read_file(file);
  const store::SafetensorsFile layout(file);
  content[static_cast<size_t>(layout.data_offset() + layout.find("w")->begin + 250)] ^= 1;  // block 3 of 10
  std::ofstream(file, std::ios::binary) << content;
  LoadedCheckpoint checkpoint(step_);
  EXPECT_NE(error_of([&] {
              checkpoint.read("w", {{70, 0, 1}});
            }).find("tensor 'w', block 3 of 10 (bytes "),
            std::string::npos);
  EXPECT_EQ(checkpoint.read("w", {{75, 0, 1}}).item<float>(), 75);
}

TEST_F(Parts, AManifestThatIsAPipeIsRefusedInWholeSentences) {
  const fs::path manifest = step_ / store::kManifestName;
  fs::remove(manifest);
  ASSERT_EQ(::mkfifo(manifest.c_str(), 0600), 0);
  EXPECT_EQ(error_of([&] { LoadedCheckpoint checkpoint(step_); }),
            concat("'", manifest.string(),
                   "' is a pipe (FIFO); a regular file is needed. Write its content to a file and name that."));
}

// Piece 1 of a shard follows piece 0, whatever is between them in the parameter.
TEST(LocalTensor, AZeroPartHasItsPiecesOneBehindTheOther) {
  const spec::ParamSpec spec{.name = "w",
                             .shape = {5, 6},
                             .tensor_placement = spec::Placement::split(1, {6}, 1),
                             .depth = 1,
                             .init = {},
                             .weight_decay = true};
  const TensorPart held = ckpt::held_part(spec, {2, 1});  // columns 3 to 6 of each row
  const TensorPart owned = ckpt::owned_part(held, {{4, 2, 64, 3}, {4, 9, 67, 2}});
  EXPECT_EQ(owned.global_shape, (std::vector<int64_t>{5, 6}));
  EXPECT_EQ(owned.extents, (Extents{{5, 0, 1}, {9, 1, 2}, {21, 3, 2}}));
  EXPECT_TRUE(ckpt::owned_part(held, {}).extents.empty());
}

}  // namespace part_test
