#include "store/run_folder.h"

#include <sys/prctl.h>
#include <sys/wait.h>

#include <cmath>
#include <csignal>
#include <set>

#include "base/host_name.h"
#include "store/beginning.h"
#include "store/diff.h"
#include "store/internal/test_folder.h"
#include "store/prune.h"

namespace espalier::store {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using test::SmallCheckpoint;
using test::write_text;

using Steps = std::vector<int64_t>;

Steps steps_of(const std::vector<StepEntry>& entries) {
  Steps steps;
  for (const StepEntry& entry : entries) steps.push_back(entry.step);
  return steps;
}

class RunFolder : public test::TestFolder {
 protected:
  // Complete checkpoints need a manifest, nothing more, to be listed.
  void add_complete(int64_t step) { SmallCheckpoint().save(folder_, step); }
  void add_folder(const std::string& name) { fs::create_directories(folder_ / name); }
};

TEST_F(RunFolder, CompleteUnfinishedAndSetAsideFoldersAreToldApart) {
  for (const int64_t step : {1000, 20, 123456789}) add_complete(step);
  add_folder("step_00000030.partial");
  add_folder("step_00000040");  // without a manifest
  add_folder("step_00000050.superseded.2");
  add_folder("step_00000060.removing");
  for (const char* name : {"tensorboard", "step_30", "step_000000x0", "step_00000070.bak"}) add_folder(name);
  write_text(folder_ / "step_00000080", "a file");

  const RunListing listing = list_steps(folder_);
  EXPECT_EQ(steps_of(listing.complete), (Steps{20, 1000, 123456789}));
  EXPECT_EQ(steps_of(listing.partial), (Steps{30, 40}));
  EXPECT_EQ(steps_of(listing.superseded), (Steps{50, 60}));
  EXPECT_TRUE(list_steps(folder_ / "none").complete.empty());
}

TEST_F(RunFolder, LoadTakesTheNewestStepOrTheOneThatIsAskedForOrAStepFolder) {
  for (const int64_t step : {100, 300, 200}) add_complete(step);
  add_folder("step_00000400.partial");
  EXPECT_EQ(find_checkpoint(folder_, {}, "")->step, 300);
  EXPECT_EQ(find_checkpoint(folder_, 200, "")->folder, folder_ / "step_00000200");
  EXPECT_EQ(find_checkpoint(folder_ / "step_00000100", {}, "")->step, 100);
  EXPECT_EQ(
      error_of([&] { find_checkpoint(folder_ / "step_00000100", 200, ""); }),
      "'" + (folder_ / "step_00000100").string() +
          "' is the checkpoint of step 100, --ckpt-step asks for 200. Give the run folder, or leave out --ckpt-step.");
}

TEST_F(RunFolder, LoadingFromTheSaveFolderStartsANewRunWhenNothingIsThereYet) {
  EXPECT_FALSE(find_checkpoint(folder_ / "run", {}, folder_ / "run/"));
  EXPECT_FALSE(find_checkpoint(folder_ / "run", {}, folder_ / "." / "run"));
  add_folder("run/step_00000001.partial");
  EXPECT_FALSE(find_checkpoint(folder_ / "run", {}, folder_ / "run")) << "killed in its first save, a run starts anew";
}

TEST_F(RunFolder, AStepWithoutAManifestIsPassedOverAloudAndNeverForANewRun) {
  add_folder("step_00000400");  // a copy that was interrupted
  const std::string error = error_of([&] { find_checkpoint(folder_, {}, folder_); });
  EXPECT_NE(error.find("Without manifest.json step_00000400 cannot be loaded: complete the copy"), std::string::npos)
      << error;
  for (const int64_t step : {100, 300}) add_complete(step);
  add_folder("step_00000200");
  testing::internal::CaptureStderr();
  EXPECT_EQ(find_checkpoint(folder_, {}, folder_)->step, 300);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "warning: step_00000400 in '" + folder_.string() +
                "' has no manifest.json (a copy that was interrupted?) and cannot be loaded: step_00000300 is used. "
                "Complete the copy, and start again, if it should count.\n");

  write_text(folder_ / "step_00000400" / "weights-00000.safetensors", "half of it");
  EXPECT_EQ(prepare_save_folder(folder_, StepEntry{300, folder_ / "step_00000300"}, 300).incomplete,
            std::vector<std::string>{"step_00000400.incomplete"});
  EXPECT_EQ(read_file(folder_ / "step_00000400.incomplete" / "weights-00000.safetensors"), "half of it");
  EXPECT_TRUE(fs::exists(folder_ / "step_00000200")) << "it is in nobody's way";
  add_complete(400);
  EXPECT_EQ(find_checkpoint(folder_, {}, folder_)->step, 400);
}

TEST_F(RunFolder, WhatInterruptedSavesAndRemovalsHaveLeftGoesAtTheNextStart) {
  add_complete(10);
  for (const char* name :
       {"step_00000005.partial", "step_00000020.partial", "step_00000004.removing", "step_00000003.partial.removing",
        "step_00000030.superseded", "step_00000031.incomplete", "step_00000032.damaged", "my.partial"}) {
    add_folder(name);
    write_text(folder_ / name / "weights-00000.safetensors", "some");
  }
  const Superseded result = prepare_save_folder(folder_, StepEntry{10, folder_ / "step_00000010"}, 10);
  EXPECT_EQ(result.removed, (std::vector<std::string>{"step_00000005.partial", "step_00000020.partial",
                                                      "step_00000003.partial.removing", "step_00000004.removing"}));
  std::set<std::string> left;
  for (const auto& entry : fs::directory_iterator(folder_)) left.insert(entry.path().filename());
  EXPECT_EQ(left, (std::set<std::string>{"step_00000010", "step_00000030.superseded", "step_00000031.incomplete",
                                         "step_00000032.damaged", "my.partial"}));
}

// What the same command finds at its next start, as training does it.
TEST_F(RunFolder, AStepThatIsAskedForByHandCountsOnce) {
  for (const int64_t step : {10, 20, 30}) add_complete(step);
  const auto start = [&](const fs::path& load, std::optional<int64_t> ckpt_step) {
    const auto found = find_checkpoint(load, ckpt_step, folder_);
    prepare_save_folder(folder_, found, found->step);
    remember_step_asked_for(load, ckpt_step, folder_);
    return found->step;
  };
  EXPECT_EQ(start(folder_, 10), 10);
  EXPECT_EQ(start(folder_, 10), 10) << "killed before its first save";
  add_complete(40);
  EXPECT_EQ(start(folder_, 10), 40) << "started again, it goes on";
  EXPECT_EQ(start(folder_ / "step_00000010", {}), 40) << "the same wish in other words";
  fs::remove_all(folder_ / "step_00000010");
  EXPECT_EQ(start(folder_, 10), 40) << "pruned since";
  add_complete(50);
  EXPECT_EQ(start(folder_, 40), 40) << "another wish";
  add_complete(60);
  EXPECT_EQ(start(folder_, {}), 60) << "no wish: the newest";
  EXPECT_EQ(start(folder_, 40), 40) << "and the same wish anew";
  EXPECT_EQ(find_checkpoint(folder_, 40, "")->step, 40) << "who does not save there means what he says";
  EXPECT_EQ(find_checkpoint(folder_, 40, folder_ / "other")->step, 40);
}

// The same command again goes on only once there is something to go on from, and only the same command does.
TEST_F(RunFolder, WhereARunBeganIsRememberedUntilItHasSaved) {
  const fs::path archive = folder_ / "archive", run = folder_ / "run";
  fs::create_directories(run);
  const Beginning plain{.load = archive};
  EXPECT_FALSE(has_gone_on(plain, run));
  EXPECT_FALSE(has_gone_on(plain, ""));
  remember_beginning(plain, 30, run);
  EXPECT_FALSE(has_gone_on(plain, run)) << "killed before its first save";
  SmallCheckpoint().save(run, 40);
  EXPECT_TRUE(has_gone_on(plain, run));
  EXPECT_TRUE(has_gone_on({.load = run / "../archive/"}, run / "")) << "the same folders by other names";
  EXPECT_FALSE(has_gone_on({.load = folder_ / "other"}, run));
  EXPECT_FALSE(has_gone_on({.load = archive, .ckpt_step = 30}, run));
  EXPECT_FALSE(has_gone_on({.load = archive, .finetune = true}, run));
  EXPECT_FALSE(has_gone_on({.load = archive, .no_load_optim = true}, run));
  EXPECT_FALSE(has_gone_on({.load = run}, run));
  remember_beginning({.load = run}, 40, run);
  EXPECT_TRUE(has_gone_on(plain, run)) << "continued by its own folder meanwhile";
  write_text(run / ".began_from", "{");
  EXPECT_FALSE(has_gone_on(plain, run)) << "not readable";
}

// An imported checkpoint, step 0, may lie where the run that finetunes it saves.
TEST_F(RunFolder, AFinetuningInItsOwnFolderHasGoneOnOnceItHasSavedItself) {
  const fs::path run = folder_ / "run";
  SmallCheckpoint().save(run, 0);
  const Beginning tuning{.load = run, .finetune = true};
  remember_beginning(tuning, 0, run);
  EXPECT_FALSE(has_gone_on(tuning, run)) << "killed before its first save";
  SmallCheckpoint().save(run, 2);
  EXPECT_TRUE(has_gone_on(tuning, run));
  EXPECT_FALSE(has_gone_on({.load = run}, run)) << "continues there anyway";
  EXPECT_FALSE(has_gone_on({.load = run / "step_00000000", .finetune = true}, run)) << "another command";
  fs::remove(run / ".began_from");
  EXPECT_FALSE(has_gone_on(tuning, run)) << "checkpoints of a run that did not begin so";
}

// Each restart would lose the moments once more.
TEST_F(RunFolder, ARunThatBeganWithoutItsOptimizersStateHasGoneOnOnceItHasSaved) {
  const fs::path run = folder_ / "run";
  SmallCheckpoint().save(run, 4);
  const Beginning fresh{.load = run, .no_load_optim = true, .optimizer = "adam"};
  EXPECT_FALSE(has_gone_on(fresh, run)) << "the first time";
  remember_beginning(fresh, 4, run);
  EXPECT_FALSE(has_gone_on(fresh, run)) << "killed before its first save";
  SmallCheckpoint().save(run, 6);
  EXPECT_TRUE(has_gone_on(fresh, run));
  EXPECT_FALSE(has_gone_on({.load = run, .no_load_optim = true, .optimizer = "sgd"}, run)) << "changed once more";
  EXPECT_FALSE(has_gone_on({.load = run, .optimizer = "adam"}, run)) << "continues there anyway";
  remember_beginning({.load = run, .optimizer = "adam"}, 6, run);
  EXPECT_FALSE(has_gone_on(fresh, run)) << "a start without it came between";
}

// Its first weights are drawn, and no restart gives up what it has learnt since.
TEST_F(RunFolder, ANewRunWhoseCommandGivesUpTheOptimizersStateHasGoneOn) {
  const fs::path run = folder_ / "run";
  fs::create_directories(run);
  const Beginning fresh{.load = run, .no_load_optim = true, .optimizer = "adam"};
  remember_beginning(fresh, 0, run);
  EXPECT_FALSE(has_gone_on(fresh, run));
  SmallCheckpoint().save(run, 2);
  EXPECT_TRUE(has_gone_on(fresh, run));
}

TEST_F(RunFolder, OtherProgramsCheckpointsAreNamedWithTheCommandThatImportsThem) {
  const auto refusal = [&](const fs::path& folder) {
    return error_of([&] { find_checkpoint(folder, {}, folder); });  // also where a new run could start
  };
  add_folder("hf");
  write_text(folder_ / "hf/config.json", "{}");
  write_text(folder_ / "hf/model.safetensors.index.json", "{}");
  const std::string hf = (folder_ / "hf").string();
  EXPECT_EQ(refusal(hf), "'" + hf +
                             "' holds no complete checkpoint: it is a Hugging Face model (config.json, "
                             "model.safetensors.index.json), not a checkpoint of Espalier. Make one of it: espalier "
                             "checkpoint import-hf --input " +
                             hf + " --save NEW_FOLDER; then give --load NEW_FOLDER");
  for (const char* entry : {"latest_checkpointed_iteration.txt", "iter_0000010", "global_step5", "mp_rank_00"}) {
    add_folder(std::string(entry) + "_of/" + entry);
    const std::string error = refusal(folder_ / (std::string(entry) + "_of"));
    EXPECT_NE(error.find(concat("it is a checkpoint of Megatron or DeepSpeed (", entry, ")")), std::string::npos)
        << error;
    EXPECT_NE(error.find("espalier checkpoint import-megatron --input "), std::string::npos) << error;
  }
}

TEST_F(RunFolder, ADamagedNewestIsSetAsideOnlyWhereAnOlderOneIsThere) {
  add_complete(10);
  EXPECT_FALSE(set_damaged_aside(folder_ / "step_00000010", folder_));
  for (const int64_t step : {20, 30}) add_complete(step);
  EXPECT_FALSE(set_damaged_aside(folder_ / "step_00000020", folder_)) << "one that was asked for by hand";
  EXPECT_EQ(set_damaged_aside(folder_ / "step_00000030", folder_ / "."),
            "step_00000030 cannot be loaded and is now step_00000030.damaged. The run goes back to step_00000020: "
            "steps 21 to 30 are trained again");
  EXPECT_EQ(find_checkpoint(folder_, {}, folder_)->step, 20);
  EXPECT_TRUE(fs::exists(folder_ / "step_00000030.damaged" / kManifestName));
}

// As root every folder can be read; so the error is made with a name that is too long for any.
TEST_F(RunFolder, NoTextOfTheFileSystemLibraryIsShown) {
  const std::string error = error_of([&] { find_checkpoint(folder_ / std::string(5000, 'x'), {}, ""); });
  EXPECT_NE(error.find("File name too long"), std::string::npos) << error;
  EXPECT_EQ(error.find("filesystem error"), std::string::npos) << error;
}

TEST_F(RunFolder, ALoadThatFindsNothingListsWhatIsThere) {
  const std::string path = folder_.string();
  EXPECT_EQ(error_of([&] { find_checkpoint(folder_ / "none", {}, folder_); }),
            "'" + path + "/none' holds no complete checkpoint: it does not exist (" + path + " does)");
  EXPECT_EQ(error_of([&] { find_checkpoint(folder_, {}, ""); }),
            "'" + path + "' holds no complete checkpoint: it is empty");
  add_folder("step_00000003.partial");
  write_text(folder_ / "config.toml", "");
  EXPECT_EQ(error_of([&] { find_checkpoint(folder_, {}, "/elsewhere"); }),
            "'" + path +
                "' holds no complete checkpoint: it holds unfinished: step_00000003.partial; other files: config.toml");
  add_complete(2);
  EXPECT_EQ(error_of([&] { find_checkpoint(folder_, 7, folder_); }),
            "'" + path +
                "' has no complete step_00000007: it holds complete: step_00000002; "
                "unfinished: step_00000003.partial; other files: config.toml");
}

TEST_F(RunFolder, GoingOnFromAnOlderStepSetsLaterCheckpointsAndRecordsAside) {
  for (const int64_t step : {10, 20, 30}) add_complete(step);
  write_text(folder_ / "metrics.jsonl",
             "{\"step\": 10}\n{\"step\": 20, \"lm_loss\": 3.5}\n{\"step\": 20, \"valid\": {}}\n{\"step\": "
             "21}\n{\"step\": 30}\n{\"step\": 3");
  const Superseded result = supersede_after(folder_, 20);
  EXPECT_EQ(result.steps, (Steps{30}));
  EXPECT_EQ(result.num_records, 3);
  EXPECT_EQ(read_file(folder_ / "metrics.jsonl"),
            "{\"step\": 10}\n{\"step\": 20, \"lm_loss\": 3.5}\n{\"step\": 20, \"valid\": {}}\n");
  EXPECT_EQ(read_file(folder_ / "metrics.superseded.jsonl"), "{\"step\": 21}\n{\"step\": 30}\n{\"step\": 3\n");
  EXPECT_EQ(steps_of(list_steps(folder_).complete), (Steps{10, 20}));
  EXPECT_EQ(find_checkpoint(folder_, {}, folder_)->step, 20);

  add_complete(30);  // the second branch arrives there too, and is left as well
  EXPECT_EQ(supersede_after(folder_, 10).steps, (Steps{20, 30}));
  EXPECT_TRUE(fs::exists(folder_ / "step_00000030.superseded"));
  EXPECT_TRUE(fs::exists(folder_ / "step_00000030.superseded.2"));
  EXPECT_EQ(read_file(folder_ / "metrics.superseded.jsonl"),
            "{\"step\": 21}\n{\"step\": 30}\n{\"step\": 3\n{\"step\": 20, \"lm_loss\": 3.5}\n{\"step\": 20, \"valid\": "
            "{}}\n");
}

TEST_F(RunFolder, SettingAsideIsRepeatedWithoutDoubledRecordsAfterAKillInBetween) {
  const std::string all = "{\"step\": 1}\n{\"step\": 2}\n";
  write_text(folder_ / "metrics.jsonl", all);
  supersede_after(folder_, 1);
  write_text(folder_ / "metrics.jsonl", all);  // as if killed before the second file was replaced
  supersede_after(folder_, 1);
  EXPECT_EQ(read_file(folder_ / "metrics.jsonl"), "{\"step\": 1}\n");
  EXPECT_EQ(read_file(folder_ / "metrics.superseded.jsonl"), "{\"step\": 2}\n");
  EXPECT_EQ(supersede_after(folder_, 1).num_records, 0);
}

TEST_F(RunFolder, ARunSavesOnlyBesideCheckpointsThatItGoesOnFrom) {
  const fs::path run = folder_ / "run";
  EXPECT_EQ(prepare_save_folder(run, {}, 0).steps, Steps{});  // nothing there yet
  write_text(folder_ / "metrics.jsonl", "{\"step\": 1}\n");   // killed before its first save
  EXPECT_EQ(prepare_save_folder(folder_, {}, 0).num_records, 1);
  for (const int64_t step : {10, 20}) add_complete(step);
  const std::string refusal =
      concat("--save '", folder_.string(),
             "' already holds checkpoints up to step_00000020, and this run does not continue from them. Give --load ",
             folder_.string(), " to continue, or another --save.");
  EXPECT_EQ(error_of([&] { prepare_save_folder(folder_, {}, 0); }), refusal);
  EXPECT_EQ(error_of([&] { prepare_save_folder(folder_, StepEntry{20, "/elsewhere/step_00000020"}, 20); }), refusal);
  EXPECT_EQ(prepare_save_folder(folder_ / ".", StepEntry{10, folder_ / "step_00000010"}, 10).steps, (Steps{20}));
}

TEST_F(RunFolder, OtherStepsAreOfferedWhereOneIsDamaged) {
  add_complete(10);
  EXPECT_EQ(other_steps_hint(folder_ / "step_00000010"), "");
  for (const int64_t step : {20, 30}) add_complete(step);
  EXPECT_EQ(other_steps_hint(folder_ / "step_00000030"), " Other complete steps: 10, 20; load one with --ckpt-step.");
}

TEST_F(RunFolder, ALockedFolderNamesItsHolderAndIsFreeWhenTheHolderDies) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const RunLock lock(folder_ / "run");
    if (::write(ready[1], "x", 1) != 1) ::_exit(1);
    ::pause();
  }
  char byte;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  const std::string message = error_of([&] { RunLock lock(folder_ / "run"); });
  EXPECT_EQ(message.substr(0, message.find(", since")),
            concat("'", (folder_ / "run").string(), "' is in use by process ", child, " on ", host_name()));
  EXPECT_NE(message.find("UTC. Wait for that run, stop it, or use another --save."), std::string::npos) << message;
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(error_of([&] {
              const RunLock lock(folder_ / "run");
              EXPECT_NE(error_of([&] { RunLock second(folder_ / "run"); }), "no error");
            }),
            "no error");
  const RunLock after_release(folder_ / "run");
}

TEST_F(RunFolder, AFolderThatCannotBeMadeIsNamed) {
  write_text(folder_ / "file", "");
  EXPECT_EQ(error_of([&] { RunLock lock(folder_ / "file" / "run"); }),
            "cannot create '" + (folder_ / "file/run/.lock").string() +
                "': Not a directory. Name a folder that can be created and written to.");
}

RunListing listing_of(const Steps& complete) {
  RunListing listing;
  for (const int64_t step : complete) listing.complete.push_back({step, step_folder_name(step)});
  listing.partial.push_back({5, "step_00000005.partial"});
  return listing;
}

TEST(Prune, KeepsTheLastTheMilestonesAndAlwaysTheNewest) {
  const RunListing listing = listing_of({100, 200, 250, 300, 350});
  EXPECT_EQ(steps_of(plan_prune(listing, {.keep_last = 2}).keep), (Steps{300, 350}));
  EXPECT_EQ(steps_of(plan_prune(listing, {.keep_last = 2}).remove), (Steps{100, 200, 250}));
  EXPECT_EQ(steps_of(plan_prune(listing, {.keep_every = 100}).keep), (Steps{100, 200, 300, 350}));
  EXPECT_EQ(steps_of(plan_prune(listing, {.keep_last = 1, .keep_every = 200}).remove), (Steps{100, 250, 300}));
  EXPECT_EQ(steps_of(plan_prune(listing, {}).keep), (Steps{350}));
  EXPECT_EQ(steps_of(plan_prune(listing, {.keep_last = 9}).remove), (Steps{}));
  EXPECT_EQ(steps_of(plan_prune(listing, {.epochs = {120, 250, 400}}).keep), (Steps{200, 250, 350}));
  EXPECT_EQ(steps_of(plan_prune(listing, {.keep_last = 1, .up_to = 299}).remove), (Steps{100, 200}));
  EXPECT_EQ(steps_of(plan_prune(listing, {.keep_last = 1, .up_to = 299}).keep), (Steps{250}));
  EXPECT_EQ(steps_of(plan_prune(listing, {}).leftovers), (Steps{5}));
  EXPECT_TRUE(plan_prune(RunListing{}, {}).keep.empty());
}

TEST_F(RunFolder, RemovingAStepLeavesTheOthersAndWhatWasHalfRemovedIsNoCheckpoint) {
  for (const int64_t step : {1, 2}) add_complete(step);
  remove_step_folder(list_steps(folder_).complete[0]);
  EXPECT_EQ(steps_of(list_steps(folder_).complete), (Steps{2}));
  EXPECT_TRUE(list_steps(folder_).superseded.empty());
  fs::rename(folder_ / "step_00000002", folder_ / "step_00000002.removing");  // killed while removing
  const RunListing listing = list_steps(folder_);
  EXPECT_TRUE(listing.complete.empty());
  remove_step_folder(listing.superseded.at(0));
  EXPECT_TRUE(fs::is_empty(folder_));
}

class Diff : public test::TestFolder {
 protected:
  fs::path save(int64_t step, const std::vector<TensorData>& tensors) {
    Manifest manifest;
    manifest.state.step = step;
    write_step(folder_, manifest, tensors, {});
    return folder_ / step_folder_name(step);
  }
  static TensorData tensor(const std::string& name, DType dtype, std::vector<int64_t> shape, const void* data) {
    return {.name = name, .file = weights_file("final"), .dtype = dtype, .shape = std::move(shape), .data = data};
  }
};

TEST_F(Diff, EqualBitsAreEqualAndOnlyTheStateIsReported) {
  SmallCheckpoint().save(folder_, 1);
  SmallCheckpoint().save(folder_, 2);
  const CheckpointDifference difference = diff_steps(folder_ / "step_00000001", folder_ / "step_00000002");
  EXPECT_EQ(difference.num_compared, 6);
  EXPECT_TRUE(difference.tensors.empty());
  EXPECT_EQ(difference.state, (std::vector<std::string>{"step: 1 | 2"}));
}

TEST_F(Diff, TheLargestDifferenceIsTakenFromTheValuesOfEveryType) {
  const float f32[2][3] = {{1, 2, 3}, {1, 2.5, -3}};
  const uint16_t bf16[2][2] = {{0x3f80, 0x4000}, {0x3f80, 0x4040}};  // 1, 2 | 1, 3
  const uint16_t f16[2][4] = {{0x3c00, 0x0001, 0x7c00, 0x8000},
                              {0x3e00, 0x0002, 0x7c00, 0x0000}};  // 1, 2^-24, inf, -0 | 1.5, 2^-23, inf, 0
  const int64_t i64[2][1] = {{5}, {-2}};
  const double nan[2][2] = {{1, 2}, {1, std::nan("")}};
  const auto tensors = [&](int side) {
    return std::vector<TensorData>{
        tensor("f32", DType::kFloat32, {3}, f32[side]), tensor("bf16", DType::kBFloat16, {2}, bf16[side]),
        tensor("f16", DType::kFloat16, {2, 2}, f16[side]), tensor("i64", DType::kInt64, {}, i64[side]),
        tensor("nan", DType::kFloat64, {2}, nan[side])};
  };
  const CheckpointDifference difference = diff_steps(save(1, tensors(0)), save(2, tensors(1)));
  ASSERT_EQ(difference.tensors.size(), 5u);
  EXPECT_EQ(difference.tensors[0].num_different, 2);
  EXPECT_EQ(difference.tensors[0].largest_difference, 6.0);
  EXPECT_EQ(difference.tensors[1].largest_difference, 1.0);
  EXPECT_EQ(difference.tensors[2].num_different, 3);  // -0 and 0 are not the same bits
  EXPECT_EQ(difference.tensors[2].largest_difference, 0.5);
  EXPECT_EQ(difference.tensors[3].largest_difference, 7.0);
  EXPECT_TRUE(std::isnan(difference.tensors[4].largest_difference));
}

TEST_F(Diff, MissingAndMisshapenTensorsAreDifferences) {
  const float values[6] = {};
  const CheckpointDifference difference =
      diff_steps(save(1, {tensor("a", DType::kFloat32, {6}, values), tensor("b", DType::kFloat32, {2, 3}, values)}),
                 save(2, {tensor("b", DType::kFloat32, {3, 2}, values), tensor("c", DType::kFloat16, {}, values)}));
  ASSERT_EQ(difference.tensors.size(), 3u);
  EXPECT_EQ(difference.tensors[0].kind, TensorDifference::Kind::kOnlyInFirst);
  EXPECT_EQ(difference.tensors[0].first, "F32 [6]");
  EXPECT_EQ(difference.tensors[1].kind, TensorDifference::Kind::kShapeOrType);
  EXPECT_EQ(difference.tensors[1].second, "F32 [3, 2]");
  EXPECT_EQ(difference.tensors[2].kind, TensorDifference::Kind::kOnlyInSecond);
  EXPECT_EQ(difference.tensors[2].name, "c");
  EXPECT_EQ(difference.num_compared, 0);
}

TEST_F(Diff, ADamagedFileIsAnErrorNotADifference) {
  SmallCheckpoint().save(folder_, 1);
  SmallCheckpoint().save(folder_, 2);
  const fs::path file = folder_ / "step_00000002" / weights_file("final");
  test::flip_bit(file, static_cast<int64_t>(fs::file_size(file)) - 1, 3);
  EXPECT_NE(
      error_of([&] { diff_steps(folder_ / "step_00000001", folder_ / "step_00000002"); }).find("expected checksum"),
      std::string::npos);
}

}  // namespace
}  // namespace espalier::store
