// Checkpoints of every released format version load for ever. Made by tests/oracle/make_checkpoint_v1.py with other
// implementations of safetensors and XXH3.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ckpt/loader.h"
#include "store/run_folder.h"
#include "store/step_reader.h"

namespace fixture_test {

using namespace espalier;

TEST(CheckpointFixture, VersionOneLoadsWithEveryValueAndItsState) {
  const auto entry = store::find_checkpoint("tests/data/checkpoints/v1", {}, "");
  ASSERT_EQ(entry->step, 1000);
  EXPECT_EQ(store::verify_step(entry->folder, 2, /*weights_only=*/false), std::vector<std::string>{});

  ckpt::LoadedCheckpoint checkpoint(entry->folder);
  std::vector<ckpt::TensorRequest> requests;
  const std::map<std::string, std::vector<int64_t>> shapes = {{"word_embeddings.weight", {40, 6}},
                                                              {"layers.0.mlp.dense_h_to_4h.weight", {9, 6}},
                                                              {"layers.0.mlp.dense_h_to_4h.bias", {9}},
                                                              {"final_layernorm.weight", {6}},
                                                              {"final_layernorm.bias", {6}}};
  for (const auto& [name, shape] : shapes) {
    requests.push_back({name, at::empty(shape, at::kBFloat16)});
    for (const char* part : {".master", ".exp_avg", ".exp_avg_sq"})
      requests.push_back({name + part, at::empty(shape, at::kFloat)});
  }
  checkpoint.load(requests, ckpt::LoadedCheckpoint::Part::kAll);
  for (const auto& request : requests) {
    const at::Tensor values = request.destination.to(at::kFloat).flatten();
    for (int64_t i = 0; i < values.numel(); ++i)
      ASSERT_EQ(values.const_data_ptr<float>()[i], static_cast<float>(i % 251 - 125) / 64) << request.name << " " << i;
  }

  const store::TrainingState& state = checkpoint.state();
  EXPECT_EQ(state.consumed_train_tokens, 1048576000);
  EXPECT_EQ(state.scheduler_samples, 511744);
  EXPECT_EQ(state.optimizer_steps, 999);
  EXPECT_EQ(state.loss_scale, 65536.0);
  EXPECT_EQ(state.loss_scale_hysteresis_tracker, 2);
  EXPECT_EQ(state.sample_order, "0123456789abcdef");
  EXPECT_EQ(checkpoint.manifest().model.padded_vocab_size, 40);
  EXPECT_EQ(checkpoint.manifest().config.substr(0, 32), "[network_size]\nnum_layers = 1\nhi");
  EXPECT_EQ(checkpoint.read_extra_file("tokenizer/vocab.json"), "{\"a\": 0, \"b\": 1}\n");
}

}  // namespace fixture_test
