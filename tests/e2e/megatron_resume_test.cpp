// Runs that Megatron-DeepSpeed began (tests/oracle/make_megatron_checkpoints.py) and this program continues with: the
// losses of the next steps against those that upstream had.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "base/format.h"
#include "convert/megatron/import.h"
#include "families/bert/config.h"
#include "tests/e2e/run_fixture.h"

namespace espalier::test {
namespace megatron_resume_test {

const std::string kFolder = "tests/data/megatron-checkpoints/";

struct Case {
  const char* fixture;
  Words options;
  double tolerance;  // relative
};

// The words of the runs that upstream made, but for where the data are.
Words words_of_run(const std::string& data, const TemporaryFolder& folder) {
  return split_blanks(concat(
      "--num-layers 2 --hidden-size 8 --num-attention-heads 4 --seq-length 16 --max-position-embeddings 16 "
      "--micro-batch-size 2 --global-batch-size 8 --lr 1e-2 --min-lr 1e-3 --lr-decay-style cosine --train-iters 6 "
      "--lr-warmup-iters 2 --weight-decay 0.1 --clip-grad 1.0 --adam-beta2 0.95 --seed 42 --attention-dropout 0 "
      "--hidden-dropout 0 --make-vocab-size-divisible-by 32 --split 100,0,0 --eval-iters 0 --init-method-std 0.3 "
      "--log-level warning --save-interval 100 --data-path ",
      kFolder, data, " --load ", folder / "imported", " --save ", folder / "run"));
}

// Of steps 4 to 6: the sum of all losses, against upstream's.
void expect_upstreams_losses(const Case& one, const TemporaryFolder& folder) {
  std::ifstream file(kFolder + one.fixture + ".losses.json");
  const std::vector<double> expected = nlohmann::json::parse(file);
  const auto records = step_records(folder / "run");
  ASSERT_EQ(records.size(), 3u);
  for (size_t at = 0; at < records.size(); ++at) {
    EXPECT_EQ(records[at]["step"], at + 4);
    const double loss = records[at]["lm_loss"].get<double>() + records[at].value("sop_loss", 0.0);
    EXPECT_LE(std::abs(loss - expected[at + 3]), one.tolerance * expected[at + 3])
        << "step " << at + 4 << ": " << loss << ", upstream " << expected[at + 3];
  }
}

void import_into(const TemporaryFolder& folder, const Case& one, const Words& tokenizer) {
  convert::import_megatron(
      {.input = kFolder + one.fixture, .save = folder / "imported", .step = {}, .train_options = tokenizer});
}

TEST(MegatronResume, TrainingGoesOnWithUpstreamsNextLosses) {
  const Words bloom = {"--bf16", "--embed-layernorm", "--position-embedding-type", "alibi"};
  const Case cases[] = {{"plain-fp32", {}, 1e-5},
                        {"plain-fp32-swiglu-tp2", {"--glu-activation", "swiglu", "--no-bias-gelu-fusion"}, 1e-5},
                        {"deepspeed-fp32-pp2", {}, 1e-5},
                        {"deepspeed-bf16-tp2pp2dp2", bloom, 3e-3}};
  const Words tokenizer = {"--vocab-file", kFolder + "vocab.json", "--merge-file", kFolder + "merges.txt"};
  for (const Case& one : cases) {
    SCOPED_TRACE(one.fixture);
    const TemporaryFolder folder;
    import_into(folder, one, tokenizer);
    train(words_of_run("tokens", folder) + tokenizer + one.options + Words{"--override", "data_path"});
    expect_upstreams_losses(one, folder);
  }
}

// Upstream averages the losses of micro-batches.
TEST(MegatronResume, TrainingOfABertGoesOnWithUpstreamsNextLosses) {
  const Case cases[] = {
      {"bert-fp32-pp2", {}, 1e-5},
      {"bert-bf16-tp2pp2", {"--bf16", "--apply-residual-connection-post-layernorm", "--no-bias-gelu-fusion"}, 3e-3},
      {"bert-fp16-words", {"--fp16", "--bert-no-binary-head", "--openai-gelu", "--initial-loss-scale", "65536"}, 1e-3}};
  const Words tokenizer = {"--vocab-file", kFolder + "vocab.txt", "--tokenizer-type", "BertWordPieceLowerCase"};
  const Words data = {"--mask-prob", "0.3", "--short-seq-prob", "0", "--loss-average", "micro-batch"};
  for (const Case& one : cases) {
    SCOPED_TRACE(one.fixture);
    const TemporaryFolder folder;
    import_into(folder, one, tokenizer);
    const Words different = {"--override", "data_path", "loss_average"};
    train(words_of_run("sentences", folder) + tokenizer + data + one.options + different, dist::single_process(),
          families::bert_family());
    expect_upstreams_losses(one, folder);
  }
}

}  // namespace megatron_resume_test
}  // namespace espalier::test
