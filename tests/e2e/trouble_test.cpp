// Runs to which something happens: a disk that is full, a folder that is removed, a loss that is not a number.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "data/token_store.h"
#include "store/manifest.h"
#include "store/run_folder.h"
#include "tests/e2e/run_fixture.h"
#include "tests/support/long_version.h"
#include "train/finite_check.h"

namespace espalier::test {
namespace trouble_test {

namespace fs = std::filesystem;

class Trouble : public ::testing::Test {
 protected:
  void SetUp() override { write_token_files(folder_ / "data", 200, 5); }
  // Of 10 steps.
  Words run(const Words& more) const {
    return tiny_run(folder_ / "data") +
           Words{"--save", folder_ / "run", "--load", folder_ / "run", "--num-threads", "1"} + more;
  }
  std::vector<int64_t> saved_steps() const { return test::saved_steps(folder_ / "run"); }
  // Details of the events of that name.
  Words events(const std::string& name) const {
    Words details;
    std::ifstream file(folder_ / "run/events.jsonl");
    for (std::string line; std::getline(file, line);)
      if (const auto event = nlohmann::json::parse(line); event.at("event") == name)
        details.push_back(event.at("detail"));
    return details;
  }
  ExitCode code_of(const Words& words, std::string* message = nullptr) const {
    try {
      train(words);
    } catch (const UserError& error) {
      if (message != nullptr) *message = error.what();
      return error.code();
    }
    return ExitCode::kOk;
  }
  TemporaryFolder folder_;
};

// Files of this process end at a size, as on a full disk: one that metrics do not reach, and checkpoints do.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes = 200'000) {
    handler_ = ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  void end() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  ~FullDisk() {
    end();
    ::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_;
  void (*handler_)(int);
};

TEST_F(Trouble, ASaveThatFailsIsToldAndTriedAgain) {
  FullDisk disk;
  std::thread room([&] {
    while (!fs::exists(folder_ / "run/events.jsonl") || events("save failed").empty())
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    disk.end();
  });
  EXPECT_EQ(code_of(run({"--save-interval", "2"})), ExitCode::kOk);
  room.join();
  EXPECT_EQ(step_records(folder_ / "run").size(), 10u);
  ASSERT_FALSE(saved_steps().empty());
  EXPECT_EQ(saved_steps().back(), 10);
  EXPECT_EQ(events("end").size(), 1u);
}

TEST_F(Trouble, ARunWhoseLastSaveFailsTrainsToItsEndAndFails) {
  const FullDisk disk;
  std::string message;
  EXPECT_EQ(code_of(run({"--save-interval", "3"}), &message), ExitCode::kInputOutput);
  EXPECT_NE(message.find("the last save failed"), std::string::npos) << message;
  EXPECT_NE(message.find("all 10 steps are lost"), std::string::npos) << message;
  EXPECT_EQ(step_records(folder_ / "run").size(), 10u);
  EXPECT_EQ(saved_steps(), std::vector<int64_t>());
  EXPECT_GE(events("save failed").size(), 3u);
  ASSERT_EQ(events("error").size(), 1u);
  EXPECT_NE(events("error")[0].find("the last save failed"), std::string::npos);
}

TEST_F(Trouble, AFolderThatIsRemovedIsMadeAgainAndHoldsTheEnd) {
  const std::string stop = folder_ / "stop";
  std::thread training([&] {
    train(run({"--save-interval", "2", "--train-samples", "80000", "--lr-decay-samples", "80000", "--kill-switch-path",
               stop}));
  });
  const auto wait_for_records = [&] {
    while (!fs::exists(folder_ / "run/metrics.jsonl") || read_file(folder_ / "run/metrics.jsonl").size() < 600)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  };
  wait_for_records();
  fs::rename(folder_ / "run", folder_ / "taken away");
  wait_for_records();
  while (!fs::exists(folder_ / "run/config.toml")) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::ofstream(stop) << "";
  training.join();
  fs::remove(stop);
  ASSERT_FALSE(saved_steps().empty());
  EXPECT_EQ(saved_steps().back(), step_records(folder_ / "run").back().at("step").get<int64_t>());
  EXPECT_EQ(read_file(folder_ / "run/config.toml"), read_file(folder_ / "taken away/config.toml"));
  EXPECT_TRUE(fs::exists(folder_ / "run/command.txt"));
  ASSERT_EQ(events("alert").size(), 1u);
  EXPECT_NE(events("alert")[0].find("was removed"), std::string::npos);
  EXPECT_TRUE(fs::exists(folder_ / "run/tensorboard"));
}

TEST_F(Trouble, AFinishedRunThatIsStartedAgainSaysNothingTwice) {
  train(run({"--save-interval", "100", "--split", "80,10,10"}));
  const std::string metrics = read_file(folder_ / "run/metrics.jsonl"),
                    events = read_file(folder_ / "run/events.jsonl");
  EXPECT_NE(metrics.find("\"test\""), std::string::npos);
  train(run({"--save-interval", "100", "--split", "80,10,10"}));
  EXPECT_EQ(read_file(folder_ / "run/metrics.jsonl"), metrics);
  EXPECT_EQ(read_file(folder_ / "run/events.jsonl"), events);
}

// One evaluation of 8 samples at step 5, one at step 10; that at the end belongs to no state. So the state of step 10
// is that of a longer run, whatever the interval of saves.
TEST_F(Trouble, SamplesOfTheLastEvaluationAreNotInTheState) {
  const auto consumed = [&](const std::string& save, const Words& more) {
    train(run({"--save", folder_ / save, "--load", folder_ / save, "--eval-interval", "5"}) + more);
    return store::read_manifest(folder_ / (save + "/step_00000010")).state.consumed_valid_samples;
  };
  EXPECT_EQ(consumed("every", {"--save-interval", "10"}), 16);
  EXPECT_EQ(consumed("last", {"--save-interval", "100"}), 16);
  EXPECT_EQ(consumed("longer", {"--save-interval", "10", "--train-samples", "96"}), 16);
}

TEST_F(Trouble, WeightsThatAreNoNumbersEndTheRunAndAreNotSaved) {
  std::string message;
  const ExitCode code =
      code_of(run({"--save-interval", "1", "--clip-grad", "0", "--lr", "1e30", "--min-lr", "1e29"}), &message);
  EXPECT_EQ(code, train::kNotFinite) << message;
  EXPECT_EQ(static_cast<int>(code), 17);
  EXPECT_NE(message.find("holds NaN or infinity"), std::string::npos) << message;
  EXPECT_NE(message.find("--clip-grad 1"), std::string::npos) << message;
  const size_t num_steps = step_records(folder_ / "run").size();
  EXPECT_LT(num_steps, 10u);
  for (const int64_t step : saved_steps()) EXPECT_LT(step, static_cast<int64_t>(num_steps));
  ASSERT_EQ(events("error").size(), 1u);
}

// Clipping keeps the weights: they are finite, but still not saved.
TEST_F(Trouble, ALossThatIsNoNumberAtTheEndIsAFailure) {
  train(run({"--save-interval", "1", "--exit-interval", "1", "--lr", "1e25", "--min-lr", "1e24", "--lr-warmup-samples",
             "0", "--clip-grad", "0"}));
  std::string message;
  const ExitCode code = code_of(run({"--save-interval", "100", "--lr", "1e25", "--min-lr", "1e24",
                                     "--lr-warmup-samples", "0", "--clip-grad", "1", "--override", "clip_grad"}),
                                &message);
  EXPECT_EQ(code, train::kNotFinite) << message;
  EXPECT_FALSE(events("alert").empty());
  EXPECT_EQ(saved_steps(), std::vector<int64_t>{1});
}

TEST_F(Trouble, ARefusedRunLeavesNoFolder) {
  train(run({"--save-interval", "100", "--exit-interval", "1"}));
  const Words refused =
      run({"--load", folder_ / "run", "--save", folder_ / "other/one", "--num-layers", "4", "--save-interval", "100"});
  EXPECT_NE(code_of(refused), ExitCode::kOk);
  EXPECT_FALSE(fs::exists(folder_ / "other"));
  fs::create_directories(folder_ / "other");
  EXPECT_NE(code_of(refused), ExitCode::kOk);
  EXPECT_TRUE(fs::is_empty(folder_ / "other"));
}

// Neither the text of its lock nor its options fit under such an `ulimit -f`.
TEST_F(Trouble, ARunThatCannotWriteItsOptionsLeavesNoFolder) {
  for (const auto& [bytes, file] : {std::pair(10, ".lock"), std::pair(1000, "config.toml.tmp")}) {
    std::string message;
    {
      const FullDisk disk(static_cast<rlim_t>(bytes));
      const std::string save = folder_ / "other/one";
      EXPECT_EQ(code_of(run({"--save-interval", "100", "--save", save, "--load", save}), &message),
                ExitCode::kInputOutput);
    }
    EXPECT_NE(message.find(concat("other/one/", file, "': File too large")), std::string::npos) << message;
    EXPECT_FALSE(fs::exists(folder_ / "other")) << file;
  }
}

// Half of the micro-batches hold nothing but ends of documents, which are masked. Micro-batches of the other half have
// equally many targets, so that Megatron's mean of means is the mean over tokens.
TEST_F(Trouble, AMicroBatchThatIsMaskedWholeIsLeftOutOfTheMean) {
  data::TokenStoreWriter full(folder_ / "full", data::TokenType::kUint16),
      empty(folder_ / "empty", data::TokenType::kUint16);
  for (int document = 0; document < 100; ++document) {
    std::vector<int32_t> ids(60);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>((document * 7 + i * i) % 97);
    full.add_sequence(ids);
    full.end_document();
    empty.add_sequence(std::vector<int32_t>(60, 4999));
    empty.end_document();
  }
  full.finish(), empty.finish();
  const Words words =
      tiny_run("1") + Words{"--data-path",        "0.5", folder_ / "full", "0.5", folder_ / "empty", "--eod-mask-loss",
                            "--micro-batch-size", "1",   "--num-threads",  "1",   "--save-interval", "100",
                            "--clip-grad",        "0"};
  train(words + Words{"--save", folder_ / "token", "--loss-average", "token"});
  train(words + Words{"--save", folder_ / "means", "--loss-average", "micro-batch"});
  const auto token = step_records(folder_ / "token"), means = step_records(folder_ / "means");
  ASSERT_EQ(token.size(), 10u);
  ASSERT_EQ(means.size(), 10u);
  for (size_t step = 0; step < 10; ++step) {
    ASSERT_TRUE(means[step].at("lm_loss").is_number()) << means[step];
    EXPECT_EQ(means[step].at("nan"), false);
    EXPECT_NEAR(means[step].at("lm_loss").get<double>(), token[step].at("lm_loss").get<double>(), 1e-5) << step;
  }
}

// Signals during the start: from the moment at which somebody listens, the run ends in good order.
TEST_F(Trouble, SignalsDuringTheStartEndTheRunWithoutFailure) {
  const Words words = Words{ESPALIER_PROGRAM, "train", "gpt"} +
                      run({"--save-interval", "1000", "--train-samples", "800000", "--lr-decay-samples", "800000"});
  const auto hears = [](pid_t child) {  // handled, or held back for the engine
    std::ifstream file(concat("/proc/", child, "/status"));
    uint64_t mask = 0;
    for (std::string line; std::getline(file, line);)
      if (line.starts_with("SigCgt:") || line.starts_with("SigBlk:")) mask |= std::stoull(line.substr(7), nullptr, 16);
    return (mask >> (SIGTERM - 1) & 1) != 0;
  };
  using Delays = std::vector<int>;
  for (const int delay_ms :
       in_suite_or_all(Delays{0, 20, 150, 500, 1200}, Delays{0, 20, 60, 150, 300, 500, 800, 1200, 1800})) {
    const pid_t child = ::fork();
    if (child == 0) {
      std::vector<char*> pointers;
      for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
      pointers.push_back(nullptr);
      if (freopen("/dev/null", "w", stderr) == nullptr) _exit(1);
      execv(ESPALIER_PROGRAM, pointers.data());
      _exit(127);
    }
    while (!hears(child)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
    ::kill(child, delay_ms % 40 == 0 ? SIGTERM : SIGHUP);
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "after " << delay_ms << " ms: " << status;
  }
}

}  // namespace trouble_test
}  // namespace espalier::test
