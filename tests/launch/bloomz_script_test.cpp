// BLOOMZ's launch script finetunes a BLOOM on packed pairs, and continues when its lines for the first start are taken
// out, with nothing else in it changed but the interpreter, paths and sizes.
#include <gtest/gtest.h>

#include <fstream>

#include "base/format.h"
#include "store/run_folder.h"
#include "tests/launch/launch_fixture.h"
#include "tests/support/launch_script.h"

namespace espalier::test {
namespace bloomz_script_test {

void expect_said(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
}

class BloomzScript : public testing::Test {
 protected:
  void SetUp() override {
    const std::string root = std::filesystem::current_path();
    std::filesystem::create_directories(repository_ + "/data");
    for (const char* language : {"en", "fr"}) {
      std::ofstream pairs(concat(repository_, "/", language, ".jsonl"));
      for (int pair = 0; pair < 200; ++pair)
        pairs << "{\"inputs\": \"" << language << ": after " << pair % 10 << " comes\", \"targets\": \" "
              << pair % 10 + 1 << "\"}\n";
    }
    const std::string tokenizer = "--tokenizer-type PretrainedFromHF --tokenizer-name-or-path bigscience/tokenizer";
    const Shell prepared = shell(
        folder_,
        concat(
            "touch ", folder_ / "work/start-tr13f-6B3-ml-t0", " && cd ", repository_,
            " && mkdir -p bigscience/tokenizer && cp ", root,
            "/tests/data/tokenizers/bloom/tokenizer.json bigscience/tokenizer"
            " && echo '{\"eos_token\": \"</s>\", \"pad_token\": \"<pad>\"}' >bigscience/tokenizer/tokenizer_config.json"
            " && for L in en fr; do for K in inputs 'targets --append-eod'; do espalier preprocess_data.py --input "
            "$L.jsonl --output-prefix data/xp3_$L --json-keys $K ",
            tokenizer,
            " || exit; done; done"
            " && L=",
            lists_,
            " && mkdir -p $L && D=$PWD/data && "
            "echo \"\\\"train: 0.7 0:0.95 $D/xp3_en, 0.3 0:0.95 $D/xp3_fr\\\"\" >$L/xp3capmixnewcodelong_train.txt && "
            "echo \"\\\"validation: 0.7 0.95:1 $D/xp3_en, 0.3 0.95:1 $D/xp3_fr\\\"\" "
            ">$L/xp3capmixnewcodelong_validation_pretr.txt"
            " && espalier preprocess_data.py --input ",
            root, "/tests/data/owt-20.jsonl --output-prefix data/text ", tokenizer,
            " && espalier pretrain_gpt.py --num-layers 4 --hidden-size 16 --num-attention-heads 4 --seq-length 40 "
            "--max-position-embeddings 40 --micro-batch-size 1 --global-batch-size 4 --train-iters 2 --lr 1e-3 "
            "--embed-layernorm --bf16 --position-embedding-type alibi --pad-vocab-size-to 512 --eval-iters 0 --save ",
            base_, " --save-interval 2 --data-path data/text_text_document ", tokenizer));
    ASSERT_EQ(prepared.exit_code, 0) << prepared.errors;
  }

  std::string script(const Replacements& more) const {
    const Replacements machine = {
        {"$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)", "127.0.0.1"},
        {"clear; srun $SRUN_ARGS --jobid $SLURM_JOBID", "SLURM_PROCID=0"},
        {"python -u -m", "espalier -u -m"},
        {"/gpfswork/rech/six/commun/code/tr13f-6B3-ml-t0/megdslossseqnew/Megatron-DeepSpeed", repository_}};
    const Replacements sizes = {{"MASTER_PORT=6001", "MASTER_PORT=0"},
                                {"GPUS_PER_NODE=8", "GPUS_PER_NODE=4"},
                                {"PP_SIZE=72", "PP_SIZE=2"},
                                {"GLOBAL_BATCH_SIZE=2048", "GLOBAL_BATCH_SIZE=8"},
                                {"NHIDDEN=14336", "NHIDDEN=16"},
                                {"NLAYERS=70", "NLAYERS=4"},
                                {"NHEADS=112", "NHEADS=4"},
                                {"SEQ_LEN=2048", "SEQ_LEN=40"},
                                {"TRAIN_SAMPLES=6_348_800", "TRAIN_SAMPLES=1_60"},
                                {"--eval-interval 250", "--eval-interval 10"},
                                {"--lr 2e-5", "--lr 1e-2"},
                                {"250880", "512"}};
    return replaced(launch_script("tr13-176B-mtf.sh", machine, sizes), more);
  }
  // What it prints is in its log.
  Shell run(const Replacements& more) const {
    write_file_atomically(folder_ / "tr13.slurm", script(more));
    return shell(folder_,
                 concat("export six_ALL_CCFRSCRATCH=", folder_ / "scratch", " six_ALL_CCFRWORK=", folder_ / "work",
                        " SLURM_JOBID=7 SLURM_NNODES=1; bash -o pipefail ", folder_ / "tr13.slurm"));
  }
  std::string log() const {
    return read_file(output_ + "tr13-176B-ml-t0-logs/logs/xp3capmixnewcodelonglossseq/main_log.txt");
  }

  TemporaryFolder folder_;
  const std::string repository_ = folder_ / "work/code/megdslossseqnew/Megatron-DeepSpeed";
  const std::string lists_ = folder_ / "work/code/tr13f-6B3-ml-t0/Megatron-DeepSpeed/data";
  const std::string base_ = folder_ / "work/bloom";
  const std::string kill_switch_ = repository_ + "/kill-switch-tr13-176B-mtf";
  const std::string output_ = folder_ / "scratch/checkpoints/tr13-176B-ml-t0/";
  const std::string run_folder_ = output_ + "checkpoints/xp3capmixnewcodelonglossseq";
};

TEST_F(BloomzScript, FinetunesStopsAndGoesOnAsItStands) {
  const Replacements from_bloom = {{"--load $CHECKPOINT_PATH", "--load " + base_}};
  std::thread killer([&] {
    EXPECT_TRUE(wait_until(120, [&] { return num_records(run_folder_) >= 6; }));
    std::ofstream(kill_switch_) << "stop";
  });
  const Shell first = run(from_bloom);
  killer.join();
  ASSERT_EQ(first.exit_code, 0) << first.errors << log();
  expect_said(log(), {"successfully loaded checkpoint from " + base_ +
                          " at iteration 2 (weights only: --finetune starts "
                          "at iteration 0)",
                      "train: ", " rows of packed pairs, 40 tokens each"});
  std::filesystem::remove(kill_switch_);

  const Shell second = run(from_bloom);
  ASSERT_EQ(second.exit_code, 0) << second.errors << log();
  expect_said(log(), {"this run began from " + base_, " loading checkpoint from " + run_folder_,
                      "validation loss at iteration 10 | lm loss value: ", "[after training is done] datetime: "});
  const auto records = step_records(run_folder_);
  ASSERT_EQ(records.size(), 20u);
  EXPECT_EQ(records.back().at("consumed_samples"), 160);
  EXPECT_LT(records.back().at("lm_loss").get<double>(), 0.8 * records.front().at("lm_loss").get<double>());
}

}  // namespace bloomz_script_test
}  // namespace espalier::test
