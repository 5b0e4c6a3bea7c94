// Models in use on the device under test: what they write, beside the CPU.
#include <gtest/gtest.h>

#include "base/format.h"
#include "families/gpt/config.h"
#include "families/t5/config.h"
#include "infer/continue_prompts.h"
#include "tests/cuda/device_under_test.h"
#include "tests/e2e/run_fixture.h"

namespace espalier::cuda_test {
namespace use_test {

using test::operator+;
using test::TemporaryFolder;
using test::Words;

struct Case {
  const char* name;
  const char* flags;
};
void PrintTo(const Case& value, std::ostream* out) { *out << value.name; }

std::vector<infer::Generated> texts_of(const std::string& run, at::Device device) {
  dist::Grid grid;
  grid.device = device;
  const infer::LoadedModel loaded =
      infer::load_model(run, {}, infer::WeightSet::kWeights, infer::WeightFormat::kSaved, grid);
  infer::GenerateConfig config{.tokens_to_generate = 9, .sampling = {.temperature = 0}, .stop_ids = {}, .begin_id = {}};
  if (loaded.text_ends) config.begin_id = loaded.text_ends->begin;
  // One that begins with another, one that fills no page, one that is longer than those that a warp sees at once.
  const std::vector<int32_t> longest = {5, 9, 3, 7, 11, 2, 30, 8, 6, 5, 4, 90, 17, 33, 2, 8, 3, 3, 21, 40};
  const std::vector<std::vector<int32_t>> prompts = {{5}, {5, 9, 3, 7}, longest};
  std::vector<infer::Generated> texts = infer::continue_prompts(loaded, prompts, config, {});
  for (const infer::Generated& alone : infer::continue_prompts(loaded, {longest}, config, {})) texts.push_back(alone);
  return texts;
}

// In fp32, so that an operand left on the wrong side shows, and rounding does not.
void expect_same_texts(const Words& flags, const config::Family& family, const TemporaryFolder& folder) {
  const Words run = flags + split_blanks("--exit-interval 2 --save-interval 1000 --eval-iters 0");
  test::train(run + Words{"--save", folder / "run"}, dist::single_process(), family);
  const std::vector<infer::Generated> cpu = texts_of(folder / "run", at::kCPU);
  std::vector<infer::Generated> device;
  {
    const UseDevice use;
    device = texts_of(folder / "run", device_under_test());
  }
  ASSERT_EQ(device.size(), cpu.size());
  for (size_t text = 0; text < cpu.size(); ++text) {
    EXPECT_EQ(device[text].generated_ids, cpu[text].generated_ids) << "text " << text;
    ASSERT_EQ(device[text].logprobs.size(), size_t{9});
    for (size_t token = 0; token < 9; ++token)
      EXPECT_NEAR(device[text].logprobs[token], cpu[text].logprobs[token], 1e-4) << "text " << text << ", " << token;
  }
}

class DeviceUse : public ::testing::TestWithParam<Case> {};
TEST_P(DeviceUse, AGptWritesWhatItWritesOnTheCpu) {
  const TemporaryFolder folder;
  test::write_token_files(folder / "data", 200, 5);
  expect_same_texts(test::tiny_run(folder / "data") + split_blanks(GetParam().flags), families::gpt_family(), folder);
}
constexpr Case kGpts[] = {
    {"as_bloom", ""},
    {"as_gpt2", "--position-embedding-type absolute"},
    {"as_llama",
     "--position-embedding-type rotary --normalization rmsnorm --swiglu --disable-bias-linear --num-key-value-heads 1 "
     "--untie-embeddings-and-output-weights --hidden-dropout 0 --attention-dropout 0"},
    {"as_gemma",
     "--qk-layernorm --normalization rmsnorm --position-embedding-type rotary --window-size 7 --logit-soft-cap 30 "
     "--attn-logit-soft-cap 50"},
    {"whole_prompts", "--objective prefix --loss-on-targets-only --reset-attention-mask"},
};
INSTANTIATE_TEST_SUITE_P(Kinds, DeviceUse, ::testing::ValuesIn(kGpts),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(DeviceUse, AT5AnswersAsOnTheCpu) {
  const TemporaryFolder folder;
  test::write_sentence_files(folder / "data", 200, 5);
  for (const char* positions : {"learned_absolute", "relative"}) {
    const TemporaryFolder runs;
    expect_same_texts(test::tiny_t5_run(folder / "data") + Words{"--position-embedding-type", positions},
                      families::t5_family(), runs);
  }
}

// On a device whose memory the host cannot reach; this one has none, and only takes the shapes.
TEST(DeviceUse, WeightsAreReadInTheMemoryOfTheMachine) {
  const TemporaryFolder folder;
  test::write_token_files(folder / "data", 200, 5);
  test::train(test::tiny_run(folder / "data") +
              split_blanks("--exit-interval 1 --save-interval 1000 --eval-iters 0 --ema 0.9") +
              Words{"--save", folder / "run"});
  dist::Grid grid;
  grid.device = at::kMeta;
  for (const auto set : {infer::WeightSet::kWeights, infer::WeightSet::kEma}) {
    const infer::LoadedModel loaded = infer::load_model(folder / "run", {}, set, infer::WeightFormat::kSaved, grid);
    EXPECT_EQ(loaded.weights().device, at::kMeta);
  }
}

TEST(DeviceUse, WhatWorksOnlyOnTheCpuIsRefused) {
  const TemporaryFolder folder;
  dist::Grid grid;
  grid.device = at::kMeta;  // any that is not the CPU: nothing comes to it
  for (const auto format : {infer::WeightFormat::kInt8, infer::WeightFormat::kStreamed}) {
    try {
      infer::load_model(folder / "run", {}, infer::WeightSet::kWeights, format, grid);
      FAIL() << "nothing was refused";
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("--device cpu"), std::string::npos) << error.what();
    }
  }
}

}  // namespace use_test
}  // namespace espalier::cuda_test
