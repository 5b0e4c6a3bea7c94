// What the writer saves, the loader gives back to the bit; what does not fit is refused by name.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <sys/mount.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "ckpt/loader.h"
#include "ckpt/writer.h"
#include "store/run_folder.h"
#include "store/step_reader.h"

namespace round_trip_test {

namespace fs = std::filesystem;
using namespace espalier;
using ckpt::CheckpointWriter;
using ckpt::LoadedCheckpoint;
using ckpt::TensorToSave;

// A folder of its own per test, gone afterwards.
class RoundTrip : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() / ("espalier_round_trip_" + std::to_string(::getpid()) + "_" + info->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    torch_seed_ = 7;
  }
  void TearDown() override { fs::remove_all(folder_); }

  at::Tensor random(const std::vector<int64_t>& shape, at::ScalarType type) {
    auto generator = at::detail::createCPUGenerator(torch_seed_++);
    return at::randn(shape, generator, at::kFloat).to(type);
  }

  std::vector<TensorToSave> tensors() {
    const std::string file = store::weights_file("00000"), optimizer = store::optimizer_file("00000");
    return {{"layers.0.mlp.weight", file, random({33, 7}, at::kBFloat16)},
            {"layers.0.mlp.bias", file, random({7}, at::kBFloat16)},
            {"scalar", store::weights_file("final"), random({}, at::kBFloat16)},
            {"empty", store::weights_file("final"), random({0, 5}, at::kBFloat16)},
            {"layers.0.mlp.weight.master", optimizer, random({33, 7}, at::kFloat)},
            {"layers.0.mlp.bias.master", optimizer, random({7}, at::kFloat)}};
  }

  static store::Manifest manifest(int64_t step) {
    store::Manifest manifest;
    manifest.state.step = step;
    manifest.state.consumed_train_samples = (int64_t{1} << 40) + 3;
    manifest.state.loss_scale = 0.1;
    manifest.config = "num_layers = 1\n\"odd\\\" key\" = 'é'\n";
    return manifest;
  }

  fs::path folder_;
  uint64_t torch_seed_ = 0;
};

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         (a.nbytes() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0);
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST_F(RoundTrip, EveryTensorComesBackToTheBitWithItsState) {
  const auto saved = tensors();
  CheckpointWriter writer(folder_, {{"tokenizer/vocab.json", "{\"a\": 0}"}});
  writer.save(manifest(12), saved);
  writer.wait();

  LoadedCheckpoint checkpoint(folder_ / "step_00000012");
  std::vector<ckpt::TensorRequest> requests;
  for (const auto& tensor : saved) requests.push_back({tensor.name, at::empty_like(tensor.value)});
  checkpoint.load(requests, LoadedCheckpoint::Part::kAll);
  for (size_t index = 0; index < saved.size(); ++index)
    EXPECT_TRUE(same_bits(saved[index].value, requests[index].destination)) << saved[index].name;
  EXPECT_EQ(checkpoint.state().consumed_train_samples, (int64_t{1} << 40) + 3);
  EXPECT_EQ(checkpoint.state().loss_scale, 0.1);
  EXPECT_EQ(checkpoint.manifest().config, manifest(12).config);
  EXPECT_EQ(checkpoint.read_extra_file("tokenizer/vocab.json"), "{\"a\": 0}");
  EXPECT_FALSE(fs::exists(folder_ / "step_00000012.partial"));
}

TEST_F(RoundTrip, WhatIsSavedIsTheStateAtTheCallNotWhatTrainingMakesOfItLater) {
  auto saved = tensors();
  const at::Tensor before = saved[0].value.clone();
  CheckpointWriter writer(folder_, {});
  writer.reserve(saved);
  writer.save(manifest(1), saved);
  writer.before_change();
  saved[0].value.fill_(0);
  writer.save(manifest(2), saved);  // waits for the first
  writer.wait();

  EXPECT_TRUE(same_bits(LoadedCheckpoint(folder_ / "step_00000001").read(saved[0].name), before));
  EXPECT_TRUE(same_bits(LoadedCheckpoint(folder_ / "step_00000002").read(saved[0].name), saved[0].value));
}

TEST_F(RoundTrip, MissingUnusedAndMisshapenTensorsAreReportedTogetherByName) {
  CheckpointWriter writer(folder_, {});
  writer.save(manifest(3), tensors());
  writer.wait();
  LoadedCheckpoint checkpoint(folder_ / "step_00000003");

  const at::Tensor untouched = at::full({7}, 5, at::kBFloat16);
  const std::string message = error_of([&] {
    checkpoint.load({{"layers.0.mlp.bias", untouched},
                     {"layers.0.mlp.weight", at::empty({7, 33}, at::kFloat)},
                     {"layers.0.mlp_.bias", at::empty({7}, at::kBFloat16)}},
                    LoadedCheckpoint::Part::kWeights);
  });
  EXPECT_EQ(message,
            "4 problems:\n"
            "  - tensor 'layers.0.mlp.weight': this run needs F32 [7, 33], weights-00000.safetensors has BF16 [33, 7]\n"
            "  - checkpoint step_00000003 has no 'layers.0.mlp_.bias'; nearest is 'layers.0.mlp.bias'\n"
            "  - 'scalar' (weights-final.safetensors) is in checkpoint step_00000003 and has no place in this model\n"
            "  - 'empty' (weights-final.safetensors) is in checkpoint step_00000003 and has no place in this model");
  EXPECT_TRUE(same_bits(untouched, at::full({7}, 5, at::kBFloat16)));
}

TEST_F(RoundTrip, DamagedTensorsAreAllNamedAndNothingIsGivenOut) {
  const auto saved = tensors();
  CheckpointWriter writer(folder_, {});
  writer.save(manifest(4), saved);
  writer.wait();
  const fs::path file = folder_ / "step_00000004" / store::optimizer_file("00000");
  const store::SafetensorsFile layout(file);
  std::string content = read_file(file);
  for (const char* name : {"layers.0.mlp.weight.master", "layers.0.mlp.bias.master"})
    content[static_cast<size_t>(layout.data_offset() + layout.find(name)->end - 1)] ^= 64;
  std::ofstream(file, std::ios::binary) << content;

  LoadedCheckpoint checkpoint(folder_ / "step_00000004");
  const std::string message = error_of([&] {
    checkpoint.load({{"layers.0.mlp.weight.master", at::empty({33, 7}, at::kFloat)},
                     {"layers.0.mlp.bias.master", at::empty({7}, at::kFloat)}},
                    LoadedCheckpoint::Part::kSome);
  });
  EXPECT_EQ(message.substr(0, 11), "2 problems:");
  EXPECT_NE(message.find(file.string() + ": tensor 'layers.0.mlp.weight.master', block 1 of 1"), std::string::npos)
      << message;
  EXPECT_NE(message.find(file.string() + ": tensor 'layers.0.mlp.bias.master', block 1 of 1"), std::string::npos)
      << message;
  EXPECT_NE(error_of([&] { checkpoint.read("layers.0.mlp.bias.master"); }), "no error");
  EXPECT_TRUE(same_bits(checkpoint.read("layers.0.mlp.bias"), saved[1].value)) << "what is whole can still be read";
}

TEST_F(RoundTrip, AMissingFileIsNamedBeforeAnythingIsRead) {
  CheckpointWriter writer(folder_, {});
  for (const int64_t step : {2, 4}) writer.save(manifest(step), tensors());
  writer.wait();
  fs::remove(folder_ / "step_00000004" / store::weights_file("final"));
  LoadedCheckpoint checkpoint(folder_ / "step_00000004");
  const at::Tensor bias = at::full({7}, 5, at::kBFloat16);
  const std::string message = error_of([&] {
    checkpoint.load({{"layers.0.mlp.bias", bias}, {"scalar", at::empty({}, at::kBFloat16)}},
                    LoadedCheckpoint::Part::kSome);
  });
  EXPECT_EQ(message, (folder_ / "step_00000004" / "weights-final.safetensors").string() +
                         ": expected by manifest.json, cannot be opened: No such file or directory. "
                         "Other complete steps: 2; load one with --ckpt-step.");
  EXPECT_TRUE(same_bits(bias, at::full({7}, 5, at::kBFloat16)));
}

// A file-size limit simulates a disk that fills up behind the writer's back.
TEST_F(RoundTrip, AnErrorOfTheThreadIsThrownByTheNextCallAndLaterSavesGoOn) {
  CheckpointWriter writer(folder_, {});
  writer.save(manifest(1), tensors());
  writer.wait();
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small = {600, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_EQ(error_of([&] { writer.save(manifest(2), tensors()); }), "no error")
      << "training goes on while it is written";
  const std::string message = error_of([&] { writer.save(manifest(3), tensors()); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(message, "checkpoint '" + (folder_ / "step_00000002").string() + "' was not saved: cannot write '" +
                         (folder_ / "step_00000002.partial" / "weights-00000.safetensors").string() +
                         "': File too large. Checkpoints saved earlier are untouched.");
  writer.save(manifest(4), tensors());
  writer.wait();
  const store::RunListing listing = store::list_steps(folder_);
  ASSERT_EQ(listing.complete.size(), 2u);
  EXPECT_TRUE(listing.partial.empty());
  for (const auto& entry : listing.complete) EXPECT_TRUE(store::verify_step(entry.folder, 1, false).empty());
}

TEST_F(RoundTrip, ADiskWithoutRoomIsNoticedBeforeTheCopy) {
  if (::mount("tmpfs", folder_.c_str(), "tmpfs", 0, "size=512k") != 0)
    GTEST_SKIP() << "cannot mount a tmpfs here: " << std::strerror(errno);
  std::string message;
  {
    CheckpointWriter writer(folder_, {});
    message = error_of([&] { writer.save(manifest(1), tensors()); });
  }
  const bool is_empty = fs::is_empty(folder_);
  ::umount2(folder_.c_str(), MNT_DETACH);
  EXPECT_NE(message.find("no room for checkpoint step_00000001 in '" + folder_.string() + "': it needs "),
            std::string::npos)
      << message;
  EXPECT_NE(message.find(" are free. Make room there, or use another --save."), std::string::npos)
      << "there is no old one to remove: " << message;
  EXPECT_TRUE(is_empty);
}

TEST_F(RoundTrip, ASaveIsReportedOnceWithItsTimes) {
  CheckpointWriter writer(folder_, {});
  EXPECT_FALSE(writer.take_report());
  writer.save(manifest(9), tensors());
  writer.wait();
  const std::optional<ckpt::SaveReport> report = writer.take_report();
  ASSERT_TRUE(report);
  EXPECT_EQ(report->step, 9);
  EXPECT_EQ(report->bytes, 2 * (33 * 7 + 7 + 1) + 4 * (33 * 7 + 7));
  EXPECT_GT(report->write_seconds, 0);
  EXPECT_FALSE(writer.take_report());
}

}  // namespace round_trip_test
