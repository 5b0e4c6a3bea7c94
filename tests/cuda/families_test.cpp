// A few steps of GPT, BERT, T5 and a biencoder, and of every part of a model or a step that is an option, on the GPU
// and on the CPU. Not part of the tests that run the kernels thread by thread, where each of these takes half a minute.
#include <gtest/gtest.h>

#include "base/format.h"
#include "families/bert/config.h"
#include "families/ict/config.h"
#include "families/t5/config.h"
#include "tests/cuda/device_under_test.h"
#include "tests/e2e/run_fixture.h"

namespace espalier::cuda_test {
namespace families_test {

using test::operator+;
using test::step_records;
using test::TemporaryFolder;
using test::Words;

constexpr int kSteps = 3;

struct Case {
  const char* name;
  const char* flags;
};
void PrintTo(const Case& value, std::ostream* out) { *out << value.name; }

void train_on_device(const Words& words, const config::Family& family) {
  const UseDevice use;
  dist::Grid grid;
  grid.device = device_under_test();
  test::train(words, grid, family);
}

// In fp32, so that an operand left on the wrong side or a part left out shows, and rounding does not.
void expect_same_steps(const Words& flags, const config::Family& family, const TemporaryFolder& folder) {
  const Words run = flags + split_blanks(concat("--exit-interval ", kSteps, " --save-interval 1000 --eval-iters 1"));
  test::train(run + Words{"--save", folder / "cpu"}, dist::single_process(), family);
  train_on_device(run + Words{"--save", folder / "device"}, family);
  const auto cpu = step_records(folder / "cpu"), device = step_records(folder / "device");
  ASSERT_EQ(cpu.size(), size_t{kSteps});
  ASSERT_EQ(device.size(), cpu.size());
  for (size_t step = 0; step < cpu.size(); ++step) {
    EXPECT_EQ(device[step].at("sample_hash"), cpu[step].at("sample_hash"));
    EXPECT_TRUE(cpu[step].contains("grad_norm"));
    size_t losses = 0;
    for (const auto& [key, value] : cpu[step].items()) {
      losses += key.ends_with("loss");
      if (!key.ends_with("loss") && key != "grad_norm") continue;
      const double expected = value.get<double>();
      EXPECT_NEAR(device[step].at(key).get<double>(), expected, 1e-4 * expected) << key << " of step " << step + 1;
    }
    EXPECT_GE(losses, 1u);
  }
}

class DeviceGpt : public ::testing::TestWithParam<Case> {};
TEST_P(DeviceGpt, TrainsAsOnTheCpu) {
  const TemporaryFolder folder;
  test::write_token_files(folder / "data", 200, 5);
  expect_same_steps(test::tiny_run(folder / "data") + split_blanks(GetParam().flags), families::gpt_family(), folder);
}
constexpr Case kGpts[] = {
    {"as_bloom", ""},
    {"as_gpt2", "--position-embedding-type absolute"},
    {"as_llama",
     "--position-embedding-type rotary --normalization rmsnorm --swiglu --disable-bias-linear --num-key-value-heads 1 "
     "--untie-embeddings-and-output-weights --hidden-dropout 0 --attention-dropout 0"},
    {"qk_norm", "--qk-layernorm --normalization rmsnorm --position-embedding-type rotary"},
    {"packed", "--packing best-fit --position-embedding-type rotary"},
    {"documents", "--reset-attention-mask --reset-position-ids --eod-mask-loss --position-embedding-type absolute"},
    {"prefix", "--objective prefix --loss-on-targets-only --reset-attention-mask"},
    {"window", "--window-size 7"},
    {"soft_caps_and_z_loss", "--logit-soft-cap 30 --attn-logit-soft-cap 50 --z-loss 0.01"},
    {"recomputed", "--checkpoint-activations"},
    {"means_of_micro_batches", "--loss-average micro-batch"},
    {"ema", "--ema 0.75 --eval-ema"},
    {"mup", "--mup --mup-base-hidden-size 8 --mup-embedding-mult 3 --mup-base-head-dim 2"},
    {"adam_bf16_moments", "--exp-avg-dtype bf16 --exp-avg-sq-dtype bf16"},
    {"adam8bit", "--optimizer adam8bit --hidden-size 48"},
    {"sgd", "--optimizer sgd --lr 0.1"},
    {"lion", "--optimizer lion --lr 1e-4"},
    {"lamb", "--optimizer lamb"},
    {"adopt", "--optimizer adopt"},
    {"muon", "--optimizer muon --muon-extra-scale-factor 0.2"},
    {"muonclip", "--optimizer muonclip --qk-clip-threshold 0.02 --muon-extra-scale-factor 0.2"},
    {"sophiag", "--optimizer sophiag --sophiag-update-interval 2"},
    {"schedule_free", "--optimizer adamwschedulefree --lr-decay-style constant"},
};
INSTANTIATE_TEST_SUITE_P(Kinds, DeviceGpt, ::testing::ValuesIn(kGpts),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(DeviceFamilies, ABertTrainsAsOnTheCpu) {
  const TemporaryFolder folder;
  test::write_sentence_files(folder / "data", 200, 5);
  expect_same_steps(test::tiny_bert_run(folder / "data"), families::bert_family(), folder);
}

TEST(DeviceFamilies, AT5TrainsAsOnTheCpu) {
  const TemporaryFolder folder;
  test::write_sentence_files(folder / "data", 200, 5);
  for (const char* positions : {"learned_absolute", "relative"}) {
    const TemporaryFolder runs;
    expect_same_steps(test::tiny_t5_run(folder / "data") + Words{"--position-embedding-type", positions},
                      families::t5_family(), runs);
  }
}

TEST(DeviceFamilies, ABiencoderTrainsAsOnTheCpu) {
  const TemporaryFolder folder;
  test::write_sentence_files(folder / "data", 200, 5);
  test::write_title_files(folder / "data_titles", 200, 6);
  expect_same_steps(test::tiny_ict_run(folder / "data"), families::ict_family(), folder);
}

}  // namespace families_test
}  // namespace espalier::cuda_test
