// Training continues from what was imported: the first loss of a run is that of transformers' logits on the same tokens
// (tests/oracle/hf_folders_oracle.py wrote both into tests/data/hf).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "convert/hf/export.h"
#include "convert/hf/import.h"
#include "data/token_store.h"
#include "store/weight_folder.h"
#include "tests/e2e/run_fixture.h"

namespace espalier::test {
namespace hf_first_loss_test {

namespace fs = std::filesystem;

template <class Element>
std::vector<Element> read_values(const store::TensorView& view) {
  std::vector<Element> values(static_cast<size_t>(view.num_elements()));
  store::TensorReader(view).read(values.data());
  return values;
}

// Transformers' logits [rows, length, vocabulary] for ids [rows, length].
struct Forward {
  explicit Forward(const fs::path& folder) {
    const auto views = store::open_weights(folder / "logits.safetensors");
    const store::TensorView &id_view = views.at("ids"), &logit_view = views.at("logits");
    rows = id_view.shape[0], length = id_view.shape[1], vocabulary = logit_view.shape[2];
    ids = read_values<int64_t>(id_view);
    logits = read_values<float>(logit_view);
  }
  int64_t id(int64_t row, int64_t position) const { return ids[static_cast<size_t>(row * length + position)]; }
  // Mean over the positions that have a next token.
  double loss(int64_t row) const {
    double sum = 0;
    for (int64_t position = 0; position + 1 < length; ++position) {
      const float* line = logits.data() + (row * length + position) * vocabulary;
      double total = 0;
      for (int64_t entry = 0; entry < vocabulary; ++entry) total += std::exp(static_cast<double>(line[entry]));
      sum += std::log(total) - line[id(row, position + 1)];
    }
    return sum / static_cast<double>(length - 1);
  }

  int64_t rows = 0, length = 0, vocabulary = 0;
  std::vector<int64_t> ids;
  std::vector<float> logits;
};

// In fp32.
void import_model(const fs::path& source, const fs::path& imported) {
  convert::ImportOptions options;
  options.input = source, options.save = imported, options.dtype = store::DType::kFloat32;
  fs::create_directories(imported);
  convert::import_hf(options, imported);
}

// Training that begins with the weights of `imported` and saves each step.
Words go_on(const fs::path& imported, const fs::path& save, const std::string& data, int64_t steps) {
  return split_blanks(concat("--recipe ", (imported / convert::kModelRecipe).string(), " --load ", imported.string(),
                             " --finetune --save ", save.string(), " --save-interval 1 --data-path ", data,
                             " --split 100,0,0 --eval-iters 0 --seq-length 12 --micro-batch-size 1 --train-iters ",
                             steps, " --lr 1e-4 --hidden-dropout 0 --attention-dropout 0"));
}

// Token files with one document of ids below 31.
void write_document(const std::string& prefix, size_t length) {
  data::TokenStoreWriter writer(prefix, data::TokenType::kUint16);
  std::vector<int32_t> document(length);
  for (size_t i = 0; i < length; ++i) document[i] = static_cast<int32_t>(i * 7 % 31);
  writer.add_sequence(document);
  writer.end_document();
  writer.finish();
}

class HfFirstLoss : public testing::TestWithParam<const char*> {};

TEST_P(HfFirstLoss, IsTheForwardLossOfTransformers) {
  const fs::path source = fs::path("tests/data/hf") / GetParam();
  const Forward expected(source);
  const TemporaryFolder folder;
  const fs::path imported = folder / "imported";
  import_model(source, imported);
  for (int64_t row = 0; row < expected.rows; ++row) {
    const std::string name = std::to_string(row);
    data::TokenStoreWriter writer(folder / ("row" + name), data::TokenType::kUint16);
    std::vector<int32_t> document;
    for (int64_t position = 0; position < expected.length; ++position)
      document.push_back(static_cast<int32_t>(expected.id(row, position)));
    writer.add_sequence(document);
    writer.end_document();
    writer.finish();
    train(go_on(imported, folder / ("run" + name), folder / ("row" + name), 1) +
          Words{"--seq-length", std::to_string(expected.length - 1)});
    const auto records = step_records(folder / ("run" + name));
    ASSERT_EQ(records.size(), 1u);
    EXPECT_EQ(records[0].at("step"), 1);
    EXPECT_NEAR(records[0].at("lm_loss").get<double>(), expected.loss(row), 1e-5 * expected.loss(row)) << "row " << row;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, HfFirstLoss, testing::Values("bloom", "gpt2", "llama", "mistral", "phi3", "qwen3"),
                         [](const auto& info) { return std::string(info.param); });

// A run that begins where its own weights are has made no progress yet: step 0 is the import. What it has learnt then
// is never begun again: the same command continues from it.
TEST(HfFinetune, GoesOnByTheSameCommandWhereItsModelWasImported) {
  const TemporaryFolder folder;
  const fs::path imported = folder / "imported", straight = folder / "straight";
  import_model("tests/data/hf/llama", imported);
  write_document(folder / "data", 200);
  train(go_on(imported, straight, folder / "data", 4));
  const Words tune = go_on(imported, imported, folder / "data", 4);
  train(tune + Words{"--exit-interval", "1"});
  train(tune + Words{"--exit-interval", "3"});
  train(tune);
  EXPECT_EQ(saved_steps(imported), (std::vector<int64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(step_records(imported), step_records(straight));
  EXPECT_EQ(different_tensors(straight / "step_00000004", imported / "step_00000004"), Words{});
}

// What a run has learnt goes back as the model that it was: its family, its token ids, its generation config.
TEST(HfFinetune, ARunKeepsWhereItsModelCameFrom) {
  const TemporaryFolder folder;
  const fs::path imported = folder / "imported", source = "tests/data/hf/mistral", back = folder / "back";
  import_model(source, imported);
  write_document(folder / "data", 200);
  train(go_on(imported, folder / "run", folder / "data", 1));
  fs::create_directories(back);
  convert::ExportOptions exported;
  exported.step_folder = folder / "run/step_00000001";
  convert::export_hf(exported, back);
  const auto config = nlohmann::json::parse(read_file(back / "config.json"));
  const auto original = nlohmann::json::parse(read_file(source / "config.json"));
  for (const char* key : {"model_type", "bos_token_id", "eos_token_id", "sliding_window"})
    EXPECT_EQ(config.at(key), original.at(key)) << key;
  EXPECT_EQ(read_file(back / "generation_config.json"), read_file(source / "generation_config.json"));
}

}  // namespace hf_first_loss_test
}  // namespace espalier::test
