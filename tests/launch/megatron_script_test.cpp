// BLOOM's launch script trains, stops by its kill switch and continues when it is run again, with nothing in it changed
// but the interpreter, paths and sizes.
#include <gtest/gtest.h>

#include <fstream>

#include "base/format.h"
#include "store/run_folder.h"
#include "tests/launch/launch_fixture.h"
#include "tests/support/launch_script.h"

namespace espalier::test {
namespace megatron_script_test {

void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
}

class MegatronScript : public testing::Test {
 protected:
  void SetUp() override {
    const std::string root = std::filesystem::current_path();
    const std::string tokenizer =
        "bigscience-catalogue-data-dev/byte-level-bpe-tokenizer-no-norm-250k-whitespace-and-eos-regex-alpha-v3-dedup-"
        "lines-articles";
    const Shell prepared =
        shell(folder_, concat("mkdir -p ", repository_, "/data && cd ", repository_, " && mkdir -p ", tokenizer,
                              " && cp ", root, "/tests/data/tokenizers/bloom/tokenizer.json ", tokenizer,
                              " && echo '{\"eos_token\": \"</s>\"}' >", tokenizer, "/tokenizer_config.json",
                              " && espalier preprocess_data.py --input ", root,
                              "/tests/data/owt-20.jsonl --output-prefix data/owt --tokenizer-type PretrainedFromHF "
                              "--tokenizer-name-or-path ",
                              tokenizer,
                              " --append-eod --dataset-impl mmap --workers 1"
                              " && echo '\"train: 1 0:0.95 data/owt_text_document\"' >data/train-splits.txt"
                              " && echo '\"valid: 1 0.95:1 data/owt_text_document\" "
                              "\"valid_en: 1 0.95:1 data/owt_text_document\"' >data/valid-splits.txt"));
    ASSERT_EQ(prepared.exit_code, 0) << prepared.errors;
    const Replacements sizes = {{"MASTER_PORT=6000", "MASTER_PORT=0"},
                                {"GPUS_PER_NODE=8", "GPUS_PER_NODE=4"},
                                {"TP_SIZE=4", "TP_SIZE=2"},
                                {"PP_SIZE=12", "PP_SIZE=2"},
                                {"GLOBAL_BATCH_SIZE=2048", "GLOBAL_BATCH_SIZE=16"},
                                {"192 16 9_765_625", "8 4 2_4"},
                                {"NHIDDEN=14336", "NHIDDEN=16"},
                                {"NLAYERS=70", "NLAYERS=4"},
                                {"NHEADS=112", "NHEADS=4"},
                                {"SEQ_LEN=2048", "SEQ_LEN=33"},
                                {"SAVE_INTERVAL=100", "SAVE_INTERVAL=10"},
                                {"--eval-interval 1000", "--eval-interval 10"},
                                {"250880", "512"},
                                {"220_000_000", "3_00"},
                                {"200_000_000", "2_40"},
                                {"183_105", "16"}};
    write_file_atomically(script_, launch_script("tr11-176B-ml.sh", without_slurm(), sizes));
  }

  // Runs the script; what it prints is in its log.
  Shell run() const {
    return shell(folder_, concat("export six_ALL_CCFRSCRATCH=", folder_ / "scratch", " six_ALL_CCFRWORK=",
                                 folder_ / "work", " SLURM_JOB_ID=7 SLURM_NNODES=1; bash ", script_));
  }
  std::string log() const { return read_file(output_ + "tr11-176B-ml-logs/logs/main/main_log.txt"); }
  // Throws the kill switch as soon as that many steps are recorded.
  std::thread kill_behind(size_t records) const {
    return std::thread([this, records] {
      EXPECT_TRUE(wait_until(120, [&] { return num_records(run_folder_) >= records; }));
      std::ofstream(kill_switch_) << "stop";
    });
  }

  TemporaryFolder folder_;
  const std::string repository_ = folder_ / "work/code/tr11-176B-ml/Megatron-DeepSpeed";
  const std::string script_ = folder_ / "tr11-176B-ml.slurm";
  const std::string kill_switch_ = repository_ + "/kill-switch-tr11-176B-exp1";
  const std::string output_ = folder_ / "scratch/checkpoints/tr11-176B-ml/";
  const std::string run_folder_ = output_ + "checkpoints/main";
};

TEST_F(MegatronScript, Bloom176BTrainsStopsAndGoesOnAsItStands) {
  std::thread killer = kill_behind(3);
  const Shell first = run();
  killer.join();
  ASSERT_EQ(first.exit_code, 0) << first.errors;
  const size_t stopped = num_records(run_folder_);
  ASSERT_LT(stopped, 10u) << log();
  expect_parts(log(), {"[default0]:no checkpoint in " + run_folder_ + " yet: a new run starts",
                       "[default0]: iteration        1/      20 | consumed samples:            8 | consumed tokens:   "
                       "       264 | elapsed time per iteration (s): ",
                       concat("saving checkpoint at iteration ", format_printf("%7d", static_cast<int>(stopped))),
                       "[Detected kill switch at " + kill_switch_ + ". Exiting] datetime: "});
  ASSERT_EQ(run().exit_code, 0);
  EXPECT_EQ(num_records(run_folder_), stopped) << "while the kill switch exists, a run ends before it begins";

  std::filesystem::remove(kill_switch_);
  const Shell second = run();
  ASSERT_EQ(second.exit_code, 0) << second.errors;
  expect_parts(log(), {concat(" loading checkpoint from ", run_folder_, " at iteration ", stopped),
                       "valid loss at iteration 10 | lm loss value: ",
                       "valid_en loss at iteration 10 | lm loss value: ", "[after training is done] datetime: "});
  // One step after the other, with the sizes of the ramp: 8, 8, 12, then 16.
  const auto records = step_records(run_folder_);
  ASSERT_EQ(records.size(), 20u);
  int64_t consumed = 0;
  for (size_t step = 0; step < records.size(); ++step) {
    const int64_t batch = step < 2 ? 8 : step == 2 ? 12 : 16;
    consumed += batch;
    EXPECT_EQ(records[step].at("step"), step + 1);
    EXPECT_EQ(records[step].at("global_batch_size"), batch) << step;
    EXPECT_EQ(records[step].at("consumed_samples"), consumed);
  }
  EXPECT_LT(records.back().at("lm_loss"), records.front().at("lm_loss"));
  std::vector<size_t> saved;
  for (const store::StepEntry& step : store::list_steps(run_folder_).complete)
    saved.push_back(static_cast<size_t>(step.step));
  EXPECT_EQ(saved, (std::vector<size_t>{stopped, 10, 20}));
  EXPECT_FALSE(std::filesystem::is_empty(output_ + "tr11-176B-ml-logs/tensorboard/main"));

  ASSERT_EQ(run().exit_code, 0);
  expect_parts(log(), {"nothing is left to train: the checkpoint is at iteration 20 of 20"});
  EXPECT_EQ(num_records(run_folder_), 20u);
}

}  // namespace megatron_script_test
}  // namespace espalier::test
