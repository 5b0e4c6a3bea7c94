// Training under a real SLURM of one machine: submit, srun, array, scancel, time limit, requeue.
#include <gtest/gtest.h>

#include <fstream>

#include "base/format.h"
#include "store/run_folder.h"
#include "tests/launch/launch_fixture.h"

namespace espalier::test {
namespace slurm_test {

class Slurm : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    cluster_ = new TemporaryFolder;
    const Shell started = shell(*cluster_, "tests/launch/slurm-cluster start " + (*cluster_ / "slurm"));
    why_not_ = started.exit_code == 0 ? "" : started.errors + "(exit code " + std::to_string(started.exit_code) + ")";
    is_absent_ = started.exit_code == 77;
    setenv("SLURM_CONF", (*cluster_ / "slurm/slurm.conf").c_str(), 1);
  }
  static void TearDownTestSuite() {
    shell(*cluster_, "tests/launch/slurm-cluster stop " + (*cluster_ / "slurm"));
    unsetenv("SLURM_CONF");
    delete cluster_;
  }
  void SetUp() override {
    if (is_absent_) GTEST_SKIP() << why_not_;
    ASSERT_EQ(why_not_, "");
    write_token_files(folder_ / "data", 300, 5);
  }

  // Two ranks of one thread, which share the batch.
  std::string training(const Words& more) const {
    return "train gpt" + command_line(tiny_run(folder_ / "data") +
                                      Words{"--save", folder_ / "run", "--load", folder_ / "run", "--save-interval",
                                            "1000", "--num-threads", "1"} +
                                      more);
  }
  // A run that does not end by itself within any test.
  std::string endless_training() const {
    return training({"--train-samples", "8000000", "--lr-decay-samples", "8000000"});
  }
  std::string submit(const std::string& options, const std::string& command) const {
    const Shell shell_result =
        shell(folder_, concat("espalier submit --nodes 1 --nproc-per-node 2 --script ", folder_ / "job.sbatch",
                              " --output ", folder_ / "job.out", " ", options, " ", command));
    EXPECT_EQ(shell_result.exit_code, 0) << shell_result.errors;
    return strip(shell_result.output);
  }
  // One field of `scontrol show job`, as JobState; empty if the job is not known.
  std::string field(const std::string& job, const std::string& name) const {
    const std::string text = shell(folder_, "scontrol show job " + job).output;
    const size_t at = text.find(" " + name + "=");
    if (at == std::string::npos) return "";
    const size_t begin = at + name.size() + 2;
    return text.substr(begin, text.find_first_of(" \n", begin) - begin);
  }
  bool comes_to(const std::string& job, const std::string& state, double seconds) const {
    return wait_until(seconds, [&] { return field(job, "JobState") == state; });
  }
  bool trains_beyond(size_t records) const {
    return wait_until(60, [&] { return num_records(folder_ / "run") > records; });
  }
  int64_t last_saved_step() const {
    const auto steps = store::list_steps(folder_ / "run").complete;
    return steps.empty() ? -1 : steps.back().step;
  }
  std::string said() const {
    const std::string file = folder_ / "job.out";
    return std::filesystem::exists(file) ? read_file(file) : "(no output)";
  }

  TemporaryFolder folder_;
  static TemporaryFolder* cluster_;
  static std::string why_not_;
  static bool is_absent_;
};
TemporaryFolder* Slurm::cluster_ = nullptr;
std::string Slurm::why_not_;
bool Slurm::is_absent_ = false;

TEST_F(Slurm, RanksUnderSrunTrainToTheBitsOfThoseUnderLaunch) {
  const std::string job = submit("", training({}));
  ASSERT_TRUE(comes_to(job, "COMPLETED", 120)) << field(job, "JobState") << said();
  EXPECT_NE(said().find("ranks by SLURM"), std::string::npos) << said();
  const Shell launched = shell(folder_, concat("espalier launch --nproc-per-node 2 ", training({}), " --save ",
                                               folder_ / "other", " --load ", folder_ / "other"));
  ASSERT_EQ(launched.exit_code, 0) << launched.errors;
  EXPECT_EQ(step_records(folder_ / "run"), step_records(folder_ / "other"));
  EXPECT_EQ(different_tensors(folder_ / "run/step_00000010", folder_ / "other/step_00000010"), Words{});
}

TEST_F(Slurm, AnArrayRunsOneBehindTheOther) {
  const std::string job = submit("--array 3", training({"--exit-interval", "3"}));
  ASSERT_TRUE(wait_until(180, [&] { return shell(folder_, "squeue -h -j " + job).output.empty(); })) << said();
  std::vector<int64_t> steps;
  for (const store::StepEntry& entry : store::list_steps(folder_ / "run").complete) steps.push_back(entry.step);
  EXPECT_EQ(steps, (std::vector<int64_t>{3, 6, 9})) << said();
  EXPECT_EQ(num_records(folder_ / "run"), 9u);
}

// The first job takes the weights of another run, the others continue the first.
TEST_F(Slurm, AnArrayMayBeginInAnotherFolder) {
  const Words archived = {"--save", folder_ / "archive", "--load", folder_ / "archive", "--exit-interval", "2"};
  const Shell archive = shell(folder_, "espalier launch --nproc-per-node 2 " + training(archived));
  ASSERT_EQ(archive.exit_code, 0) << archive.errors;
  const Words tuned = {"--load", folder_ / "archive", "--finetune"};
  const std::string job = submit("--array 2", training(tuned + Words{"--exit-interval", "3"}));
  ASSERT_TRUE(wait_until(180, [&] { return shell(folder_, "squeue -h -j " + job).output.empty(); })) << said();
  EXPECT_EQ(saved_steps(folder_ / "run"), (std::vector<int64_t>{3, 6})) << said();
  const Shell straight =
      shell(folder_, "espalier launch --nproc-per-node 2 " +
                         training(tuned + Words{"--exit-interval", "6", "--save", folder_ / "other"}));
  ASSERT_EQ(straight.exit_code, 0) << straight.errors;
  EXPECT_EQ(step_records(folder_ / "run"), step_records(folder_ / "other"));
  EXPECT_EQ(different_tensors(folder_ / "run/step_00000006", folder_ / "other/step_00000006"), Words{});
}

// espalier watch submits the next job when none is queued, and none once the run has finished.
TEST_F(Slurm, WatchContinuesARunJobAfterJob) {
  std::filesystem::create_directories(folder_ / "run");
  const std::string dry = submit("--dry-run --job-name watched", training({"--exit-interval", "4"}));
  write_file_atomically(folder_ / "next.sbatch", dry + "\n");
  const Shell watched = shell(folder_, concat(kAwait, "folder=", folder_.path(), R"(
    espalier watch $folder/run --interval 0.5 --patience-minutes 5 --job-name watched --next-job $folder/next.sbatch \
      --alert-command 'cat >>'$folder'/alerts' 2>$folder/log & watch=$!
    await grep -qs '"event":"end"' $folder/run/events.jsonl
    sleep 3; kill $watch; wait $watch; echo "watch: $?"
    grep -c '"event":"watch: next job"' $folder/run/events.jsonl; squeue -h | wc -l)"));
  EXPECT_TRUE(watched.output.starts_with("watch: 0\n3\n"))
      << watched.output << watched.errors << said() << read_file(folder_ / "log");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "alerts")) << read_file(folder_ / "alerts");
  EXPECT_TRUE(watched.output.ends_with("\n0\n")) << watched.output;
  // This SLURM keeps no accounting, which is said once and changes nothing else.
  const std::string log = read_file(folder_ / "log");
  const size_t said_once = log.find("sacct failed with exit code 1: Slurm accounting storage is disabled");
  ASSERT_NE(said_once, std::string::npos) << log;
  EXPECT_EQ(log.find("sacct failed", said_once + 1), std::string::npos) << log;
  std::vector<int64_t> steps;
  for (const store::StepEntry& entry : store::list_steps(folder_ / "run").complete) steps.push_back(entry.step);
  EXPECT_EQ(steps, (std::vector<int64_t>{4, 8, 10})) << said();
}

TEST_F(Slurm, ScancelLetsTheRunSave) {
  const std::string job = submit("", endless_training());
  ASSERT_TRUE(trains_beyond(2)) << said();
  shell(folder_, "scancel " + job);
  ASSERT_TRUE(comes_to(job, "CANCELLED", 60)) << field(job, "JobState");
  ASSERT_TRUE(wait_until(30, [&] { return last_saved_step() > 0; })) << said();
  EXPECT_EQ(last_saved_step(), static_cast<int64_t>(num_records(folder_ / "run")));
}

TEST_F(Slurm, BeforeTheTimeLimitTheRunSavesAndEndsWell) {
  // SLURM signals up to a minute early, so this comes soon.
  const std::string job = submit("--time 1 --signal-seconds 50", endless_training());
  ASSERT_TRUE(trains_beyond(0)) << said();
  ASSERT_TRUE(comes_to(job, "COMPLETED", 120)) << field(job, "JobState") << said();
  EXPECT_GT(last_saved_step(), 0);
  EXPECT_EQ(last_saved_step(), static_cast<int64_t>(num_records(folder_ / "run")));
}

TEST_F(Slurm, ARequeuedJobGoesOn) {
  const std::string job = submit("", endless_training());
  ASSERT_TRUE(trains_beyond(2)) << said();
  EXPECT_EQ(shell(folder_, "scontrol requeue " + job).exit_code, 0);
  ASSERT_TRUE(wait_until(60, [&] { return last_saved_step() > 0; })) << said();
  const auto saved = static_cast<size_t>(last_saved_step());
  ASSERT_TRUE(trains_beyond(saved + 2)) << field(job, "JobState") << said();
  EXPECT_EQ(field(job, "Restarts"), "1");
  shell(folder_, "scancel " + job);
  EXPECT_TRUE(comes_to(job, "CANCELLED", 60));
}

// Tasks of one job share a curation; requeued in the middle of it, they resume. The outputs are those of one process.
TEST_F(Slurm, TasksThatAreRequeuedCurateToTheBytesOfOneProcess) {
  const std::string root = std::filesystem::current_path();
  const Words documents = split(strip(read_file(root + "/tests/data/owt-20.jsonl")), '\n');
  std::ofstream input(folder_ / "crawl.jsonl");
  for (int copy = 0; copy < 400; ++copy)  // three times the same 133
    for (const std::string& line : documents)
      input << line.substr(0, line.size() - 2) << " Copy " << copy % 133 << ".\"}\n";
  input.close();
  const auto recipe = [&](const std::string& name) {
    const std::string path = folder_ / (name + ".toml");
    write_file_atomically(
        path, concat("[output]\nfolder = \"", folder_ / name, "\"\ntokenizer = \"", root,
                     "/tests/data/gpt2-tiny/vocab.json\"\n[run]\nshard = \"512KiB\"\nworkers = 1\n[[source]]\nname = ",
                     "\"crawl\"\nfiles = [\"", folder_ / "crawl.jsonl",
                     "\"]\n[[step]]\nname = \"language\"\nkeep = [\"en\"]\n[[step]]\nname = \"exact\"\n",
                     "[[step]]\nname = \"gopher\"\n[[step]]\nname = \"pii\"\n"));
    return path;
  };
  const Shell alone = shell(folder_, "espalier curate " + recipe("alone"));
  ASSERT_EQ(alone.exit_code, 0) << alone.errors;
  EXPECT_NE(alone.errors.find("exact: 8,000 in, 2,660 out"), std::string::npos) << alone.errors;

  const std::string job = submit("", "curate " + recipe("shared"));
  const std::string count = concat("test $(find ", folder_ / "shared/work", " -type f | wc -l) -ge 8");
  ASSERT_TRUE(wait_until(60, [&] { return shell(folder_, count).exit_code == 0; })) << said();
  EXPECT_EQ(shell(folder_, "scontrol requeue " + job).exit_code, 0);
  ASSERT_TRUE(comes_to(job, "COMPLETED", 180)) << field(job, "JobState") << said();
  EXPECT_EQ(field(job, "Restarts"), "1");
  for (const char* file : {"documents.jsonl", "documents_text_document.bin", "documents_text_document.idx", "fates"}) {
    const Shell compared =
        shell(folder_, concat("diff -rq ", folder_ / "alone/", file, " ", folder_ / "shared/", file));
    EXPECT_EQ(compared.exit_code, 0) << compared.output << compared.errors << said();
  }
}

}  // namespace slurm_test
}  // namespace espalier::test
