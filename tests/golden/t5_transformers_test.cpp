// T5 and mT5 against transformers: imported weights give the same loss, gradients and answers, and are exported to the
// bit. tests/oracle/t5_oracle.py made tests/data/t5; with ESPALIER_FRESH_ORACLES=DIR the models of DIR/t5 are tried as
// well. Everything in fp32.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "ckpt/loader.h"
#include "convert/hf/export.h"
#include "convert/hf/import.h"
#include "families/registry.h"
#include "infer/engine/completion.h"
#include "infer/engine/decoder_model.h"
#include "infer/generate.h"
#include "models/t5/batch.h"
#include "models/t5/model.h"
#include "pipeline/runner.h"
#include "store/weight_folder.h"

namespace espalier {
namespace t5_transformers_test {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr double kLossTolerance = 1e-5, kGradientTolerance = 1e-4;  // the latter of the norm of the tensor's gradient
constexpr int32_t kBegin = 0, kEnd = 1;

std::vector<fs::path> t5_cases() {
  std::vector<fs::path> folders = {"tests/data/t5"}, found;
  if (const char* fresh = std::getenv("ESPALIER_FRESH_ORACLES")) folders.push_back(fs::path(fresh) / "t5");
  for (const fs::path& folder : folders)
    for (const auto& entry : fs::directory_iterator(folder)) found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

class T5Folder {
 public:
  T5Folder() {
    std::string name = (fs::temp_directory_path() / "espalier_t5_XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~T5Folder() { fs::remove_all(path_); }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

families::T5Config without_dropout(const fs::path& step_folder) {
  families::T5Config config =
      families::t5_config(families::read_saved_run(store::read_manifest(step_folder), step_folder.string()));
  config.hidden_dropout = config.attention_dropout = 0;
  return config;
}

// An imported model, whole.
struct ImportedT5 {
  explicit ImportedT5(const fs::path& step_folder, bool with_grad = true)
      : config(without_dropout(step_folder)), params(families::t5_params(config), {}, at::kFloat, with_grad) {
    ckpt::LoadedCheckpoint checkpoint(step_folder);
    for (tensor::Param& param : params.params()) param.value.copy_(checkpoint.read(param.spec->name));
    if (with_grad) params.zero_grad();
  }
  families::T5Config config;
  tensor::ParamSet params;
  models::T5Model model{nn::LayerBuilder{params, dist::single_process()}, config, {0, config.last_depth() + 1}, {}};
};

class T5Transformers : public ::testing::TestWithParam<fs::path> {
 protected:
  fs::path imported(const std::string& part) {
    fs::create_directory(folder_.path() / part);
    return convert::import_hf({.input = GetParam() / part, .save = folder_.path() / part, .dtype = {}},
                              folder_.path() / part)
        .step_folder;
  }

  std::vector<std::vector<int32_t>> prompts_of_encoder() const {
    std::vector<std::vector<int32_t>> prompts;
    for (size_t row = 0; row < json_.at("encoder").size(); ++row) {
      std::vector<int32_t> ids = json_.at("encoder").at(row);
      ids.resize(json_.at("lengths").at(row));
      prompts.push_back(ids);
    }
    return prompts;
  }

  models::SampleRow row_of(size_t row) const {
    const auto ids = [&](const char* name) { return json_.at(name).at(row).get<std::vector<int64_t>>(); };
    std::vector<int64_t> mask;
    for (const int64_t label : ids("labels")) mask.push_back(label >= 0);
    // Padding is known from the lengths; an id of a text may equal the padding's.
    return {static_cast<int64_t>(row), {{ids("encoder"), ids("decoder"), ids("labels"), mask, {0}}, 0}};
  }

  T5Folder folder_;
  Json json_ = Json::parse(std::ifstream(GetParam() / "case.json"));
};

TEST_P(T5Transformers, LossAndEveryGradientAreTransformers) {
  ImportedT5 t5(imported("weights"));
  ckpt::LoadedCheckpoint wanted(imported("gradients"));
  pipeline::Runner runner({&t5.model}, dist::single_process().pipeline, t5.params.grad_queue());
  std::vector<models::SampleRow> rows;
  for (size_t row = 0; row < json_.at("encoder").size(); ++row) rows.push_back(row_of(row));
  const tensor::Batch batch = models::make_t5_batch(rows, /*pad=*/0);
  const double count = batch.targets.at(0).second;
  const auto totals =
      runner.train(plan::schedule_1f1b(1, 0, 1), {batch}, [&](const pipeline::LossTerm&) { return 1 / count; })
          .totals();
  EXPECT_NEAR(totals.at(0).sum / totals.at(0).count, json_.at("loss").get<double>(), kLossTolerance);
  for (tensor::Param& param : t5.params.params()) {
    const std::string& name = param.spec->name;
    const at::Tensor found = param.grad.to(at::kDouble), expected = wanted.read(name).to(at::kDouble);
    EXPECT_LE((found - expected).norm().item<double>(), kGradientTolerance * expected.norm().item<double>() + 1e-9)
        << name;
  }
}

TEST_P(T5Transformers, GreedyAnswersAreTransformers) {
  const ImportedT5 t5(imported("weights"));
  const std::vector<std::vector<int32_t>> prompts = prompts_of_encoder();
  infer::GenerateConfig settings{.tokens_to_generate = 6, .sampling = {}, .stop_ids = {kEnd}, .begin_id = kBegin};
  settings.sampling.top_k = 1;
  const auto results = infer::generate(t5.model, at::kFloat, prompts, settings);
  for (size_t row = 0; row < prompts.size(); ++row) {
    // Where two tokens are nearly as likely the answer stops.
    const auto wanted = json_.at("answers").at(row).get<std::vector<int32_t>>();
    ASSERT_GE(results[row].generated_ids.size(), wanted.size());
    EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), results[row].generated_ids.begin())) << "row " << row;
  }
}

// All prompts at once, in pages; the same answers and, scored without drawing, the same loss.
TEST_P(T5Transformers, TheEnginesAnswersAndScoresAreTransformers) {
  const ImportedT5 t5(imported("weights"), /*with_grad=*/false);
  const std::vector<std::vector<int32_t>> prompts = prompts_of_encoder();
  infer::DecoderModel model(t5.model, {at::kFloat}, {.page_tokens = 8, .num_pages = 64});
  infer::Engine engine(model, nullptr, {});
  std::vector<infer::Request> asked, scored;
  double count = 0, sum = 0;
  for (size_t row = 0; row < prompts.size(); ++row) {
    infer::Request request{.prompt_ids = {kBegin}, .encoder_ids = prompts[row], .max_tokens = 6, .stop_ids = {kEnd}};
    request.sampling.top_k = 1;
    asked.push_back(request);
    const auto decoder = json_.at("decoder").at(row).get<std::vector<int32_t>>();
    std::vector<int32_t> labels = json_.at("labels").at(row);
    while (!labels.empty() && labels.back() < 0) labels.pop_back();
    count += static_cast<double>(labels.size());
    // Labels are what the decoder reads, one place on: the last of them it does not read.
    std::vector<int32_t> read(decoder.begin(), decoder.begin() + static_cast<std::ptrdiff_t>(labels.size()));
    ASSERT_TRUE(std::equal(read.begin() + 1, read.end(), labels.begin())) << "row " << row;
    scored.push_back(infer::score_request(std::span(read).first(1), labels));
    scored.back().encoder_ids = prompts[row];
  }
  const auto answers = infer::complete(engine, asked), scores = infer::complete(engine, scored);
  for (size_t row = 0; row < prompts.size(); ++row) {
    const auto wanted = json_.at("answers").at(row).get<std::vector<int32_t>>();
    const std::vector<infer::TokenScore>& tokens = answers[row].choices.at(0).tokens;
    ASSERT_GE(tokens.size(), wanted.size());
    for (size_t at = 0; at < wanted.size(); ++at) EXPECT_EQ(tokens[at].id, wanted[at]) << "row " << row;
    sum += infer::log_likelihood(scores[row]).sum;
  }
  EXPECT_NEAR(-sum / count, json_.at("loss").get<double>(), kLossTolerance);
}

TEST_P(T5Transformers, AnExportHasTheSameTensorsToTheBit) {
  const fs::path step = imported("weights"), out = folder_.path() / "out";
  fs::create_directory(out);
  convert::export_hf({.step_folder = step, .dtype = {}}, out);
  const auto before = store::open_weights(GetParam() / "weights"), after = store::open_weights(out);
  ASSERT_EQ(before.size(), after.size());
  for (const auto& [name, view] : before) {
    ASSERT_TRUE(after.contains(name)) << name;
    const store::TensorView& other = after.at(name);
    ASSERT_EQ(view.shape, other.shape) << name;
    std::string a(static_cast<size_t>(view.num_bytes()), '\0'), b(static_cast<size_t>(other.num_bytes()), '\1');
    store::TensorReader(view).read(a.data());
    store::TensorReader(other).read(b.data());
    EXPECT_TRUE(a == b) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, T5Transformers, ::testing::ValuesIn(t5_cases()), [](const auto& info) {
  return info.param.filename().string() + (info.param.string().starts_with("tests") ? "" : "_fresh");
});

}  // namespace t5_transformers_test
}  // namespace espalier
