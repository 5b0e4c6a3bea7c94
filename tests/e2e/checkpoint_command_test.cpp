// espalier checkpoint as a user meets it, on copies of the committed checkpoint.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "store/run_folder.h"
#include "store/step_writer.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;

struct CheckpointOutcome {
  int exit_code = -1;
  std::string output, errors;
};

class CheckpointCommand : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(run_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  CheckpointOutcome espalier(const std::string& arguments) const {
    const std::string out = folder_ / "out", err = folder_ / "err";
    const int status = std::system(concat(ESPALIER_PROGRAM, " checkpoint ", arguments, " >", out, " 2>", err).c_str());
    return {WEXITSTATUS(status), read_file(out), read_file(err)};
  }
  void add(const std::string& name) const {
    fs::copy("tests/data/checkpoints/v1/step_00001000", run_ / name, fs::copy_options::recursive);
    store::Manifest manifest = store::read_manifest(run_ / name);
    manifest.state.step = std::stoll(name.substr(5));
    write_file_atomically(run_ / name / store::kManifestName, store::to_json(manifest));
  }
  void damage(const std::string& file) const {
    std::string content = read_file(run_ / file);
    content.back() ^= 1;
    std::ofstream(run_ / file, std::ios::binary) << content;
  }

  const fs::path folder_ = fs::temp_directory_path() / concat("espalier_checkpoint_command_", ::getpid());
  const fs::path run_ = folder_ / "run";
};

TEST_F(CheckpointCommand, InspectShowsStateAndTensorsOfTheNewestStep) {
  add("step_00000500");
  add("step_00001000");
  fs::create_directories(run_ / "step_00001500.partial");
  const CheckpointOutcome outcome = espalier("inspect " + run_.string());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  for (const char* text :
       {"step_00001000\n", "complete steps: 500; 1,000\n", "unfinished steps: 1,500\n",
        "consumed_train_tokens          1,048,576,000\n", "  layout                         tp1pp1dp1\n",
        "layers.0.mlp.dense_h_to_4h.weight.exp_avg     F32 [9, 6]        216       3  optimizer-00000.safetensors\n",
        "20 tensors, 4.31 KiB in 7 files; weights 630 B, optimizer 3.69 KiB; format version 1\n"})
    EXPECT_NE(outcome.output.find(text), std::string::npos) << text << "not in\n" << outcome.output;
  EXPECT_EQ(espalier("inspect --config " + run_.string()).output.substr(0, 30), "[network_size]\nnum_layers = 1\n");
  const CheckpointOutcome json = espalier("inspect --json --ckpt-step 500 " + run_.string());
  EXPECT_EQ(json.exit_code, 0);
  EXPECT_NE(json.output.find("\"folder\":\"" + (run_ / "step_00000500").string() + "\"}\n"), std::string::npos)
      << json.output;
}

TEST_F(CheckpointCommand, VerifyExitsWithOneAndNamesTheTensorWhenAByteIsFlipped) {
  add("step_00001000");
  EXPECT_EQ(espalier("verify " + run_.string()).exit_code, 0);
  damage("step_00001000/optimizer-final.safetensors");
  const CheckpointOutcome outcome = espalier("verify " + run_.string());
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.output.find("optimizer-final.safetensors: tensor 'final_layernorm.weight.master', block 3 of 3"),
            std::string::npos)
      << outcome.output;
  EXPECT_EQ(espalier("verify --weights-only " + run_.string()).exit_code, 0);
  EXPECT_NE(espalier("verify --json " + run_.string()).output.find("\"ok\":false"), std::string::npos);
}

TEST_F(CheckpointCommand, DiffExitsWithZeroOnlyForEqualBits) {
  add("step_00001000");
  const std::string fixture = " tests/data/checkpoints/v1";
  const CheckpointOutcome equal = espalier("diff " + run_.string() + fixture);
  EXPECT_EQ(equal.exit_code, 0);
  EXPECT_EQ(equal.output, "all 20 tensors are bitwise equal\n");
  damage("step_00001000/weights-final.safetensors");
  const CheckpointOutcome damaged = espalier("diff " + run_.string() + fixture);
  EXPECT_EQ(damaged.exit_code, 65);
  EXPECT_NE(damaged.errors.find("expected checksum"), std::string::npos) << damaged.errors;
}

TEST_F(CheckpointCommand, DiffExitsWithOneAndShowsTheLargestDifferenceOfEachTensor) {
  const float first[3] = {1, 2, 3}, second[3] = {1, 2.5, 2};
  for (const auto& [step, values] : {std::pair(1, first), std::pair(2, second)}) {
    store::Manifest manifest;
    manifest.state.step = step;
    store::write_step(run_, manifest,
                      {{.name = "w",
                        .file = store::weights_file("final"),
                        .dtype = store::DType::kFloat32,
                        .shape = {3},
                        .data = values}},
                      {});
  }
  const std::string both = (run_ / "step_00000001").string() + " " + (run_ / "step_00000002").string();
  const CheckpointOutcome outcome = espalier("diff " + both);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(
      outcome.output,
      "w F32 [3]: 2 elements differ, largest difference 1\nstate step: 1 | 2\n1 tensors are not equal, 1 compared\n");
  EXPECT_EQ(espalier("diff --json " + both).output,
            "{\"equal\":false,\"num_compared\":1,\"tensors\":[{\"name\":\"w\",\"kind\":\"values\",\"first\":\"F32 "
            "[3]\",\"second\":"
            "\"F32 [3]\",\"num_different\":2,\"largest_difference\":1.0}],\"state\":[\"step: 1 | 2\"]}\n");
}

TEST_F(CheckpointCommand, PruneShowsFirstAndRemovesOnlyWhenToldTo) {
  for (const char* name : {"step_00000500", "step_00001000", "step_00001500", "step_00001700.partial"}) add(name);
  const CheckpointOutcome shown = espalier("prune --keep-every 1000 " + run_.string());
  EXPECT_EQ(shown.exit_code, 0) << shown.errors;
  EXPECT_NE(shown.output.find("remove  step_00000500 "), std::string::npos) << shown.output;
  EXPECT_NE(shown.output.find("keep    step_00001500 "), std::string::npos) << shown.output;
  EXPECT_NE(shown.errors.find("nothing was removed; add --yes to do it"), std::string::npos);
  EXPECT_TRUE(fs::exists(run_ / "step_00000500"));
  {
    const store::RunLock lock(run_);  // a run is on: its unfinished folder stays
    EXPECT_EQ(espalier("prune --yes --keep-every 500 " + run_.string()).exit_code, 0);
    EXPECT_TRUE(fs::exists(run_ / "step_00001700.partial"));
  }
  EXPECT_EQ(espalier("prune --yes --keep-every 1000 " + run_.string()).exit_code, 0);
  EXPECT_FALSE(fs::exists(run_ / "step_00000500"));
  EXPECT_FALSE(fs::exists(run_ / "step_00001700.partial"));
  EXPECT_TRUE(fs::exists(run_ / "step_00001000"));
  EXPECT_TRUE(fs::exists(run_ / "step_00001500"));
}

TEST_F(CheckpointCommand, PruneRemovesNothingWhenTheNewestIsDamagedOrNoRuleIsGiven) {
  for (const char* name : {"step_00000500", "step_00001000"}) add(name);
  EXPECT_EQ(espalier("prune --yes " + run_.string()).exit_code, 2);
  fs::remove(run_ / "step_00001000/weights-00000.safetensors");
  const CheckpointOutcome outcome = espalier("prune --yes --keep-last 1 " + run_.string());
  EXPECT_EQ(outcome.exit_code, 65);
  EXPECT_NE(outcome.errors.find("weights-00000.safetensors: expected by manifest.json, cannot be opened"),
            std::string::npos)
      << outcome.errors;
  EXPECT_TRUE(fs::exists(run_ / "step_00000500"));
}

// One flipped bit, sizes and headers as they were: in the newest, and in an older one that is to stay.
TEST_F(CheckpointCommand, PruneReadsEverythingThatStaysBeforeAnythingGoes) {
  for (const std::string damaged : {"step_00002000", "step_00001000"}) {
    fs::remove_all(run_);
    fs::create_directories(run_);
    for (const char* name : {"step_00000500", "step_00001000", "step_00001500", "step_00002000"}) add(name);
    damage(damaged + "/optimizer-final.safetensors");
    const CheckpointOutcome outcome = espalier("prune --yes --keep-every 1000 " + run_.string());
    EXPECT_EQ(outcome.exit_code, 65) << outcome.errors;
    EXPECT_NE(outcome.errors.find((run_ / damaged / "optimizer-final.safetensors").string() + ": tensor '"),
              std::string::npos)
        << outcome.errors;
    EXPECT_NE(outcome.errors.find("Nothing was removed"), std::string::npos) << outcome.errors;
    EXPECT_EQ(store::list_steps(run_).complete.size(), 4u);
    fs::rename(run_ / damaged, folder_ / ("damaged_" + damaged));  // as the message says
    EXPECT_EQ(espalier("prune --yes --keep-every 1000 " + run_.string()).exit_code, 0);
    EXPECT_EQ(store::list_steps(run_).complete.size(), damaged == "step_00002000" ? 2u : 1u);
  }
}

// A spike between two checkpoints, and one in the same step as a checkpoint.
TEST_F(CheckpointCommand, PruneKeepsThoseBeforeAndAfterASpike) {
  for (int step = 500; step <= 4500; step += 500) add(concat("step_0000", step < 1000 ? "0" : "", step).c_str());
  write_file_atomically(run_ / "events.jsonl",
                        "{\"time\":1,\"event\":\"start\",\"step\":600,\"detail\":\"\"}\n"
                        "{\"time\":2,\"event\":\"spike\",\"step\":1201,\"detail\":\"\"}\n"
                        "{\"time\":3,\"event\":\"spike\",\"step\":3000,\"detail\":\"\"}\n");
  const CheckpointOutcome outcome = espalier("prune --yes --keep-spikes " + run_.string());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  std::vector<int64_t> kept;
  for (const store::StepEntry& entry : store::list_steps(run_).complete) kept.push_back(entry.step);
  EXPECT_EQ(kept, (std::vector<int64_t>{1000, 1500, 2500, 3000, 4500}));
}

TEST_F(CheckpointCommand, PruneSaysInJsonWhatGoes) {
  for (const char* name : {"step_00000500", "step_00001000"}) add(name);
  const auto json = [&](const std::string& removed) {
    const auto row = [&](const std::string& name, const std::string& step, const std::string& bytes) {
      return concat("[{\"step\":", step, ",\"folder\":\"", (run_ / name).string(), "\",\"bytes\":", bytes, "}]");
    };
    int64_t bytes[2] = {};
    for (const int i : {0, 1})
      for (const auto& entry : fs::recursive_directory_iterator(run_ / (i == 0 ? "step_00000500" : "step_00001000")))
        if (entry.is_regular_file()) bytes[i] += static_cast<int64_t>(entry.file_size());
    return concat("{\"run\":\"", run_.string(), "\",\"keep\":", row("step_00001000", "1000", std::to_string(bytes[1])),
                  ",\"remove\":", row("step_00000500", "500", std::to_string(bytes[0])), ",\"removed\":", removed,
                  "}\n");
  };
  const std::string shown = json("false"), removed = json("true");
  EXPECT_EQ(espalier("prune --json --keep-last 1 " + run_.string()).output, shown);
  EXPECT_EQ(espalier("prune --json --yes --keep-last 1 " + run_.string()).output, removed);
  EXPECT_FALSE(fs::exists(run_ / "step_00000500"));
}

TEST_F(CheckpointCommand, AnUnknownVerbAndAFolderWithoutCheckpointAreErrors) {
  const CheckpointOutcome verb = espalier("verfy x");
  EXPECT_EQ(verb.exit_code, 2);
  EXPECT_NE(verb.errors.find("unknown command verfy; did you mean verify?"), std::string::npos) << verb.errors;
  const CheckpointOutcome folder = espalier("verify " + run_.string());
  EXPECT_EQ(folder.exit_code, 66);
  EXPECT_NE(folder.errors.find("holds no complete checkpoint: it is empty"), std::string::npos) << folder.errors;
}

}  // namespace
}  // namespace espalier
