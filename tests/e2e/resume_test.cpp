// A run that was stopped and resumed is the run that was not, bit for bit.
#include <gtest/gtest.h>

#include <cstdlib>
#include <regex>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/hash.h"
#include "data/gpt_dataset.h"
#include "store/manifest.h"
#include "store/run_folder.h"
#include "tests/e2e/run_fixture.h"

namespace espalier::test {
namespace resume_test {

struct Case {
  const char* name;
  Words flags;
};
void PrintTo(const Case& value, std::ostream* out) { *out << value.name; }

class Resume : public ::testing::TestWithParam<Case> {};

// Ten steps straight, against the same ten steps with stops after steps 3 and 7.
TEST_P(Resume, StoppedAndResumedEqualsStraightBitForBit) {
  const TemporaryFolder folder;
  write_token_files(folder / "data", 200, 5);
  const Words run = tiny_run(folder / "data") + GetParam().flags + Words{"--save-interval", "1000"};
  train(run + Words{"--save", folder / "straight"});
  for (const char* stop : {"3", "7", "100"})
    train(run + Words{"--save", folder / "stopped", "--load", folder / "stopped", "--exit-interval", stop});

  const auto straight = step_records(folder / "straight"), stopped = step_records(folder / "stopped");
  ASSERT_GE(straight.size(), 10u);
  ASSERT_EQ(stopped.size(), straight.size());
  for (size_t step = 0; step < straight.size(); ++step) EXPECT_EQ(stopped[step], straight[step]) << "step " << step + 1;
  if (std::string(GetParam().name) == "fp16_with_overflows") {
    EXPECT_TRUE(straight.front().at("skipped")) << "the case exists for overflows";
    EXPECT_FALSE(straight.back().at("skipped"));
  }
  const std::string last =
      "/step_" + std::string(8 - std::to_string(straight.size()).size(), '0') + std::to_string(straight.size());
  EXPECT_EQ(different_tensors(folder / "straight" + last, folder / "stopped" + last), Words{});
}

INSTANTIATE_TEST_SUITE_P(
    Precisions, Resume,
    ::testing::Values(
        Case{"fp32", {}}, Case{"bf16", {"--bf16"}}, Case{"fp8", {"--bf16", "--fp8-format", "hybrid"}},
        Case{"fp16_with_overflows", {"--fp16", "--initial-loss-scale", "16777216", "--loss-scale-window", "3"}},
        Case{"batch_ramp",
             {"--rampup-batch-size", "2", "2", "24", "--train-samples", "60", "--lr-decay-samples", "60"}},
        // 200 documents hold about 190 samples of 33 tokens: the run crosses into a second epoch.
        Case{"epoch_end",
             {"--train-samples", "240", "--lr-decay-samples", "240", "--global-batch-size", "24", "--bf16"}},
        Case{"llama_bf16",
             split_blanks("--bf16 --position-embedding-type rotary --num-key-value-heads 1 --normalization rmsnorm "
                          "--qk-layernorm --swiglu --ffn-hidden-size 40 --disable-bias-linear --window-size 9 "
                          "--untie-embeddings-and-output-weights")},
        Case{"learned_positions_recompute",
             {"--position-embedding-type", "absolute", "--checkpoint-activations", "--reset-attention-mask",
              "--reset-position-ids", "--eod-mask-loss"}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(ResumeRecords, StepsBehindTheLoadedOneMoveAside) {
  const TemporaryFolder folder;
  write_token_files(folder / "data", 200, 5);
  const Words run = tiny_run(folder / "data") + Words{"--save", folder / "run", "--save-interval", "4"};
  train(run);
  ASSERT_EQ(step_records(folder / "run").size(), 10u);
  train(run + Words{"--load", folder / "run", "--ckpt-step", "4", "--exit-interval", "6"});
  const auto records = step_records(folder / "run");
  ASSERT_EQ(records.size(), 6u);
  EXPECT_EQ(records.back().at("step"), 6);
  EXPECT_TRUE(std::filesystem::exists(folder / "run/metrics.superseded.jsonl"));
}

// Only its end is saved.
Words saving_run(const std::string& data) { return tiny_run(data) + Words{"--save-interval", "1000"}; }

std::string refusal(const Words& words) {
  try {
    train(words);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

// A tenth of the samples is of a set of twelve documents: 80 samples take one epoch of it, 400 take more. The large set
// has one epoch in both runs.
TEST(ResumeOrder, ALengthThatTakesAnotherEpochOfASmallSetIsRefused) {
  const TemporaryFolder folder;
  write_token_files(folder / "large", 900, 5);
  write_token_files(folder / "small", 12, 6);
  const Words run =
      saving_run("0.9 " + (folder / "large") + " 0.1 " + (folder / "small")) +
      Words{"--split", "100,0,0", "--eval-iters", "0", "--save", folder / "run", "--load", folder / "run"};
  train(run + Words{"--exit-interval", "4"});
  const Words longer = run + Words{"--train-samples", "400", "--exit-interval", "6"};
  const std::string refused = refusal(longer);
  EXPECT_NE(refused.find(concat("data set 2 of 2, '", folder / "small", "': it was asked for ")), std::string::npos)
      << refused;
  EXPECT_EQ(refused.find("data set 1 of 2"), std::string::npos) << refused;
  EXPECT_EQ(step_records(folder / "run").size(), 4u);
  train(run + Words{"--train-samples", "88", "--exit-interval", "5"});
  train(longer + Words{"--override", "sample_order"});
  EXPECT_EQ(step_records(folder / "run").size(), 6u);
}

TEST(ResumeOrder, FilesOfASmallSetThatWereReplacedAreRefused) {
  const TemporaryFolder folder;
  write_token_files(folder / "large", 900, 5);
  write_token_files(folder / "small", 12, 6);
  const Words run =
      saving_run("0.98 " + (folder / "large") + " 0.02 " + (folder / "small")) +
      Words{"--split", "100,0,0", "--eval-iters", "0", "--save", folder / "run", "--load", folder / "run"};
  train(run + Words{"--exit-interval", "4"});
  write_token_files(folder / "small", 12, 8);
  EXPECT_NE(refusal(run).find(concat("data set 2 of 2, '", folder / "small", "': its documents have other lengths")),
            std::string::npos)
      << refusal(run);
}

// Another validation set changes nothing of what is learnt: the run goes on and says that losses cannot be compared.
TEST(ResumeOrder, AValidationSetThatWasReplacedIsReported) {
  const TemporaryFolder folder;
  write_token_files(folder / "large", 300, 5);
  write_token_files(folder / "valid", 40, 6);
  const Words run =
      without(saving_run("unused"), {"--data-path", "--split"}) + Words{"--train-weighted-split-paths",
                                                                        "TRAIN: 1 0:1 " + (folder / "large"),
                                                                        "--valid-weighted-split-paths",
                                                                        "HELD: 1 0:1 " + (folder / "valid"),
                                                                        "--save",
                                                                        folder / "run",
                                                                        "--load",
                                                                        folder / "run"};
  const auto warnings = [&](const Words& more) {  // of the program: train() is quiet
    std::string line = concat(ESPALIER_PROGRAM, " train gpt");
    for (const std::string& word : run + more) line += concat(" '", word, "'");
    EXPECT_EQ(std::system(concat(line, " 2>", folder / "log").c_str()), 0) << read_file(folder / "log");
    std::string said;
    for (const std::string& written : split(read_file(folder / "log"), '\n'))
      if (written.find("warning: evaluations of ") != std::string::npos) said += written + "\n";
    return said;
  };
  EXPECT_EQ(warnings({"--exit-interval", "4"}), "");
  EXPECT_EQ(warnings({"--train-samples", "88", "--exit-interval", "5"}), "") << "more of the same set";
  write_token_files(folder / "valid", 40, 8);
  const std::string said = warnings({"--exit-interval", "6"});
  EXPECT_NE(said.find(concat("evaluations of HELD cannot be compared with those before this start: '", folder / "valid",
                             "': it holds other tokens")),
            std::string::npos)
      << said;
  EXPECT_EQ(step_records(folder / "run").size(), 6u);
}

// The fingerprint of earlier releases, made here as they made it: eight places up to the checkpoint's, eight after it.
TEST(ResumeOrder, AnOlderFingerprintStillLoadsAndStillRefuses) {
  const TemporaryFolder folder;
  write_token_files(folder / "data", 200, 5);
  const Words run = saving_run(folder / "data") + Words{"--save", folder / "run", "--load", folder / "run"};
  train(run + Words{"--exit-interval", "4"});
  data::DataSetOptions options;
  options.data_path = {folder / "data"}, options.split = "90,10,0", options.sequence_length = 33, options.seed = 7;
  options.train_samples = 80;
  const data::GptDataSets sets = data::GptDataSets::open(options);
  Hasher hasher;
  std::vector<int64_t> ids(34);
  for (int64_t at = 0; at < 8; ++at)
    for (const int64_t number : {32 * at / 8, 32 + at}) {
      sets.train->sample(number, ids);
      hasher.update(ids.data(), ids.size() * sizeof(int64_t));
    }
  const std::filesystem::path manifest = folder.path() / "run/step_00000004/manifest.json";
  const auto write = [&](const std::string& order) {
    store::Manifest old = store::read_manifest(manifest.parent_path());
    old.state.sample_order = order;
    write_file_atomically(manifest, store::to_json(old));
  };
  write("0123456789abcdef");
  EXPECT_NE(refusal(run).find("the samples around number 32 have the hash "), std::string::npos) << refusal(run);
  write(hex64(hasher.digest()));
  train(run + Words{"--exit-interval", "6"});
  EXPECT_EQ(step_records(folder / "run").size(), 6u);
}

// Place n of the run holds the same sample whatever reads it, so a run continues in other micro-batches bit for bit.
TEST(ResumeOrder, ACyclicRunGoesOnInOtherMicroBatches) {
  const TemporaryFolder folder;
  write_token_files(folder / "data", 200, 5);
  const Words run = saving_run(folder / "data") + split_blanks("--dataloader-type cyclic --train-samples 240");
  train(run + Words{"--save", folder / "straight"});
  const Words stopped = run + Words{"--save", folder / "stopped", "--load", folder / "stopped"};
  train(stopped + Words{"--exit-interval", "7"});
  train(stopped + Words{"--micro-batch-size", "4"});
  const auto straight = step_records(folder / "straight"), other = step_records(folder / "stopped");
  ASSERT_EQ(straight.size(), 30u);
  ASSERT_EQ(other.size(), 30u);
  for (size_t step = 0; step < straight.size(); ++step)
    EXPECT_EQ(straight[step].at("sample_hash"), other[step].at("sample_hash")) << step;
  EXPECT_NE(refusal(stopped + Words{"--cyclic-layout", "2", "1", "--train-samples", "248"})
                .find("the way of reading was cyclic 1 x 1 of "),
            std::string::npos);
}

TEST(TokenIds, NegativeOnesInAnInt32StoreAreRefusedAtTheStart) {
  const TemporaryFolder folder;
  data::TokenStoreWriter writer(folder / "data", data::TokenType::kInt32);
  for (int document = 0; document < 90; ++document) {
    std::vector<int32_t> ids(50, document);
    if (document == 0) ids[3] = -7;
    writer.add_sequence(ids);
    writer.end_document();
  }
  writer.finish();
  const std::string refused = refusal(saving_run(folder / "data") + Words{"--save", folder / "run"});
  EXPECT_NE(refused.find("data.bin: id of token 3 of sequence 0: expected 0 to 4999, found -7."), std::string::npos)
      << refused;
}

TEST(Finetune, TakesTheWeightsAndStartsAtStepOne) {
  const TemporaryFolder folder;
  write_token_files(folder / "data", 200, 5);
  const Words run = tiny_run(folder / "data") + Words{"--save-interval", "100"};
  train(run + Words{"--save", folder / "base"});
  train(run + Words{"--load", folder / "base", "--finetune", "--save", folder / "tuned", "--seed", "8",
                    "--exit-interval", "2"});
  const auto base = step_records(folder / "base"), tuned = step_records(folder / "tuned");
  ASSERT_EQ(tuned.size(), 2u);
  EXPECT_EQ(tuned[0].at("step"), 1);
  EXPECT_EQ(tuned[0].at("consumed_samples"), 8);
  EXPECT_EQ(tuned[1].at("learning_rate"), base[1].at("learning_rate"));
  // Ten steps took the loss well below that of drawn weights; it continues from there.
  const double drawn = base.front().at("lm_loss"), learnt = base.back().at("lm_loss");
  ASSERT_LT(learnt, drawn - 0.2);
  EXPECT_NEAR(tuned[0].at("lm_loss").get<double>(), learnt, 0.5 * (drawn - learnt));
}

// Moments and position continue, and the weights are those that were learnt: the next loss and rate are those of the
// run that stayed in its type, within what bf16 rounds.
TEST(OtherPrecision, GoesOnWithWeightsMomentsAndPosition) {
  const TemporaryFolder folder;
  write_token_files(folder / "data", 200, 5);
  const Words run = tiny_run(folder / "data") + Words{"--save-interval", "5"};
  train(run + Words{"--save", folder / "fp32"});
  const auto stayed = step_records(folder / "fp32");
  // A loss scale at which nothing overflows, so that fp16 skips no step.
  const Words overrides = {"--override", "bf16", "fp16", "initial_loss_scale"};
  for (const Words& type : {Words{"--bf16"}, Words{"--fp16", "--initial-loss-scale", "256"}}) {
    const std::string changed = folder / type[0];
    train(run + type + overrides + Words{"--load", folder / "fp32", "--ckpt-step", "5", "--save", changed});
    train(run + overrides +
          Words{"--load", changed, "--ckpt-step", "10", "--save", folder / "back", "--train-samples", "88",
                "--lr-decay-samples", "80"});
    const auto records = step_records(changed);
    ASSERT_EQ(records.size(), 5u);
    EXPECT_EQ(records[0].at("step"), 6);
    for (const char* same : {"sample_hash", "learning_rate"}) EXPECT_EQ(records[0].at(same), stayed[5].at(same));
    for (size_t step = 0; step < 5; ++step)
      EXPECT_NEAR(records[step].at("lm_loss").get<double>(), stayed[step + 5].at("lm_loss").get<double>(), 0.01);
    const auto back = step_records(folder / "back");
    ASSERT_EQ(back.size(), 1u);
    EXPECT_EQ(back[0].at("step"), 11);
    std::filesystem::remove_all(folder / "back");
  }
}

TEST(Finetune, GoesOnByTheSameCommandAndNeverBeginsAgainOverARunThatHasCheckpoints) {
  const TemporaryFolder folder;
  write_token_files(folder / "data", 200, 5);
  const Words run = tiny_run(folder / "data") + Words{"--save-interval", "2"};
  train(run + Words{"--save", folder / "base"});
  std::filesystem::copy(folder / "base", folder / "other", std::filesystem::copy_options::recursive);
  const Words into = run + Words{"--finetune", "--save", folder / "tuned"};
  const Words tune = into + Words{"--load", folder / "base"};
  train(tune + Words{"--exit-interval", "1"});
  std::filesystem::remove_all(folder / "tuned/step_00000001");
  train(tune + Words{"--exit-interval", "4"});  // killed before its first checkpoint: it may begin again
  try {
    train(into + Words{"--load", folder / "other"});
    FAIL() << "began again";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what())
                  .find(concat("--finetune would start again at iteration 0, and --save ", folder / "tuned",
                               " (command line) already holds checkpoints up to iteration 4. To continue that run "
                               "leave out --finetune and give --load ",
                               folder / "tuned", "; to start afresh give another --save")),
              std::string::npos)
        << error.what();
  }
  train(tune);
  train(into + Words{"--load", folder / "base", "--save", folder / "straight"});
  EXPECT_EQ(step_records(folder / "tuned"), step_records(folder / "straight"));
  EXPECT_EQ(different_tensors(folder / "straight/step_00000010", folder / "tuned/step_00000010"), Words{});
}

// Of a run that did not finetune: at once, before anything is trained.
TEST(Finetune, InTheFolderOfAnotherRunIsRefusedAtItsFirstStart) {
  const TemporaryFolder folder;
  write_token_files(folder / "data", 200, 5);
  const Words run =
      tiny_run(folder / "data") + Words{"--save-interval", "2", "--save", folder / "run", "--load", folder / "run"};
  train(run + Words{"--exit-interval", "2"});
  for (const Words& words : {Words{}, Words{"--ckpt-step", "2"}, Words{"--load", folder / "run/step_00000002"}})
    EXPECT_NE(refusal(run + Words{"--finetune"} + words)
                  .find(concat("--finetune would start again at iteration 0, and --save ", folder / "run",
                               " (command line) already holds checkpoints up to iteration 2. To continue that run "
                               "leave out --finetune and give --load ",
                               folder / "run", "; to start afresh give another --save")),
              std::string::npos);
  EXPECT_EQ(step_records(folder / "run").size(), 2u);
}

TEST(NoLoadOptim, KeepsThePositionWithFreshMoments) {
  const TemporaryFolder folder;
  write_token_files(folder / "data", 200, 5);
  const Words run =
      tiny_run(folder / "data") + Words{"--save-interval", "100", "--save", folder / "run", "--load", folder / "run"};
  train(run + Words{"--exit-interval", "5"});
  train(run + Words{"--no-load-optim"});
  const auto records = step_records(folder / "run");
  ASSERT_EQ(records.size(), 10u);
  EXPECT_EQ(records[5].at("step"), 6);
}

// A scheduler's next job has the same command, and would lose the moments once more.
TEST(NoLoadOptim, CountsOnceForARunInOneFolder) {
  const TemporaryFolder folder;
  write_token_files(folder / "data", 200, 5);
  const auto run = [&](const std::string& name) {
    return tiny_run(folder / "data") +
           Words{"--save-interval", "100", "--save", folder / name, "--load", folder / name};
  };
  for (const char* name : {"straight", "restarted", "twice"}) train(run(name) + Words{"--exit-interval", "5"});
  train(run("straight") + Words{"--no-load-optim"});
  for (const char* name : {"restarted", "twice"}) {
    train(run(name) + Words{"--no-load-optim", "--exit-interval", "8"});
    if (std::string(name) == "twice") std::filesystem::remove(folder / "twice/.began_from");
    train(run(name) + Words{"--no-load-optim"});
  }
  const auto differences = [&](const std::string& name) {
    return different_tensors(folder / "straight/step_00000010", folder / (name + "/step_00000010"));
  };
  EXPECT_EQ(differences("restarted"), Words{});
  EXPECT_NE(differences("twice"), Words{});
}

TEST(NoLoadOptim, InTheCommandOfANewRunItLosesNothingAtARestart) {
  const TemporaryFolder folder;
  write_token_files(folder / "data", 200, 5);
  const auto run = [&](const std::string& name) {
    return tiny_run(folder / "data") +
           Words{"--save-interval", "100", "--save", folder / name, "--load", folder / name, "--no-load-optim"};
  };
  train(run("straight"));
  train(run("restarted") + Words{"--exit-interval", "6"});
  train(run("restarted"));
  EXPECT_EQ(different_tensors(folder / "straight/step_00000010", folder / "restarted/step_00000010"), Words{});
}

// The run's own checkpoints count whole, whatever was not taken of the one that it began from.
TEST(NoLoadOptim, ARollBackTakesTheMomentsOfTheRunsOwnCheckpoint) {
  const TemporaryFolder folder;
  const auto run = [&](const std::string& name, const Words& more) {
    train(split_blanks(
              "--num-layers 1 --hidden-size 16 --num-attention-heads 2 --seq-length 32 --max-position-embeddings 32"
              " --micro-batch-size 1 --global-batch-size 2 --lr 1e-3 --train-iters 40 --lr-decay-iters 40 --seed 7"
              " --data-path tests/data/owt-20_text_document --split 100,0,0 --eval-iters 0 --num-threads 1"
              " --tokenizer-type GPT2BPETokenizer --vocab-file tests/data/gpt2-tiny/vocab.json"
              " --merge-file tests/data/gpt2-tiny/merges.txt --save-interval 5"
              " --skip-step-sigma 3 --skip-step-window 8") +
          Words{"--save", folder / name, "--load", folder / name} + more);
  };
  run("back", {"--exit-interval", "5"});
  run("back", {"--no-load-optim", "--spike-policy", "roll-back"});
  const std::string events = read_file(folder / "back/events.jsonl");
  const std::regex pattern("goes back to the checkpoint of step (\\d+) and passes over steps (\\d+) to (\\d+)");
  Words ranges = {"--skip-train-iteration-range"};
  int64_t last = 0;
  for (std::sregex_iterator found(events.begin(), events.end(), pattern); found != std::sregex_iterator(); ++found) {
    last = std::stoll((*found)[1]);
    ranges.push_back(concat((*found)[2].str(), "-", (*found)[3].str()));
  }
  ASSERT_GT(last, 5) << events;
  const std::string step = store::step_folder_name(last);
  for (const char* name : {"whole", "dropped"}) {
    std::filesystem::create_directories(folder / name);
    std::filesystem::copy(folder / ("back/" + step), folder / concat(name, "/", step),
                          std::filesystem::copy_options::recursive);
  }
  run("whole", ranges);
  run("dropped", ranges + Words{"--no-load-optim"});
  EXPECT_EQ(different_tensors(folder / "back/step_00000040", folder / "whole/step_00000040"), Words{});
  EXPECT_NE(different_tensors(folder / "back/step_00000040", folder / "dropped/step_00000040"), Words{});
}

// --ckpt-step counts once as well, also for a later command without --no-load-optim.
TEST(NoLoadOptim, WithAStepInOneFolderThatStepStaysRemembered) {
  const TemporaryFolder folder;
  write_token_files(folder / "data", 200, 5);
  const Words run =
      tiny_run(folder / "data") + Words{"--save-interval", "2", "--save", folder / "run", "--load", folder / "run"};
  train(run + Words{"--exit-interval", "4"});
  const Words from_2 = run + Words{"--ckpt-step", "2"};
  train(from_2 + Words{"--no-load-optim", "--exit-interval", "6"});
  train(from_2 + Words{"--no-load-optim", "--exit-interval", "8"});
  train(from_2);
  EXPECT_EQ(step_records(folder / "run").size(), 10u);
  EXPECT_FALSE(std::filesystem::exists(folder / "run/step_00000008.superseded"));
}

}  // namespace resume_test
}  // namespace espalier::test
