// BERTs against transformers: the gradient of every tensor of a folder, and what a mistake in a head would change.
// tests/oracle/bert_folders_oracle.py made them; with ESPALIER_FRESH_ORACLES=DIR the folders of DIR/hf_bert are tried
// as well. (That outputs are transformers' is in hf_folders_test.cpp, as of every folder.)
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "base/file.h"
#include "ckpt/loader.h"
#include "convert/copy_pieces.h"
#include "convert/hf/config.h"
#include "convert/hf/import.h"
#include "families/registry.h"
#include "models/bert/batch.h"
#include "models/bert/model.h"
#include "pipeline/runner.h"
#include "store/manifest.h"
#include "store/weight_folder.h"

namespace espalier {
namespace bert_folders_test {

namespace fs = std::filesystem;

constexpr double kGradientTolerance = 1e-4;  // of the norm of the tensor's gradient
// Of the norm of the whole gradient, where a gradient is zero in exact arithmetic.
constexpr double kZeroTolerance = 1e-6;

std::vector<fs::path> bert_folders() {
  std::vector<fs::path> roots = {"tests/data/hf"}, found;
  if (const char* fresh = std::getenv("ESPALIER_FRESH_ORACLES")) roots.push_back(fs::path(fresh) / "hf_bert");
  for (const fs::path& root : roots)
    if (fs::exists(root))
      for (const auto& entry : fs::directory_iterator(root))
        if (fs::exists(entry.path() / "gradients.safetensors")) found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

at::Tensor tensor_of(const store::TensorView& view) {
  const at::Tensor tensor = at::empty(view.shape, view.dtype == store::DType::kInt64 ? at::kLong : at::kFloat);
  store::TensorReader(view).read(tensor.data_ptr());
  return tensor;
}

std::map<std::string, at::Tensor> tensors_of(const fs::path& file) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& [name, view] : store::open_weights(file)) tensors[name] = tensor_of(view);
  return tensors;
}

// Their tensors as ours. A gradient goes where its weight goes.
std::map<std::string, at::Tensor> as_ours(const convert::TensorMap& map,
                                          const std::map<std::string, at::Tensor>& theirs) {
  const convert::PieceCopier copier(map, convert::Direction::kImport, [&](size_t number) {
    return convert::SourceTensor{store::DType::kFloat32, theirs.at(map.theirs[number].name).data_ptr()};
  });
  std::map<std::string, at::Tensor> ours;
  for (size_t number = 0; number < map.ours.size(); ++number) {
    const at::Tensor tensor = at::empty(map.ours[number].shape, at::kFloat);
    copier.fill(number, 0, tensor.numel(), store::DType::kFloat32, tensor.data_ptr());
    ours[map.ours[number].name] = tensor;
  }
  return ours;
}

tensor::Batch batch_of(const std::map<std::string, at::Tensor>& inputs,
                       const std::map<std::string, at::Tensor>& targets) {
  tensor::Batch batch;
  batch.ids = inputs.at("ids");
  const int64_t rows = batch.ids.size(0), length = batch.ids.size(1);
  const at::Tensor used = inputs.at("used"), labels = targets.at("labels");
  batch.positions = at::arange(length, at::kLong).expand({rows, length}).contiguous();
  batch.labels = labels.clamp_min(0);
  batch.loss_mask = (labels >= 0).to(at::kFloat);
  for (int64_t row = 0; row < rows; ++row) batch.sample_numbers.push_back(row);
  const at::Tensor last = used.sum(1, true) - 1;
  batch.extra = {{models::kTokenTypes, inputs.at("types")},
                 {models::kHalvesSwapped, targets.at("order_labels")},
                 {models::kLastKeys, at::where(used == 1, last, at::full_like(used, -1)).to(at::kInt)}};
  return batch;
}

class BertFolder : public testing::TestWithParam<fs::path> {
 protected:
  void SetUp() override {
    fs::remove_all(run_);
    fs::create_directories(run_);
  }
  void TearDown() override { fs::remove_all(run_); }
  const fs::path run_ = fs::temp_directory_path() / ("espalier_bert_folders_" + std::to_string(::getpid()));
};
INSTANTIATE_TEST_SUITE_P(Oracle, BertFolder, testing::ValuesIn(bert_folders()),
                         [](const auto& info) { return info.param.filename().string(); });

TEST_P(BertFolder, EveryGradientIsTransformers) {
  convert::ImportOptions options;
  options.input = GetParam(), options.save = run_, options.dtype = store::DType::kFloat32;
  const convert::ImportReport imported = convert::import_hf(options, run_);
  const convert::ModelConfig& model = imported.model.config;
  families::BertConfig config = families::bert_config(model.settings, model.vocabulary);
  config.hidden_dropout = config.attention_dropout = 0;
  tensor::ParamSet params(families::bert_params(config), {}, at::kFloat, true);
  ckpt::LoadedCheckpoint checkpoint(imported.step_folder);
  for (tensor::Param& param : params.params()) param.value.copy_(checkpoint.read(param.spec->name));
  params.zero_grad();
  models::BertModel bert(nn::LayerBuilder{params, dist::single_process()}, config, {0, config.num_layers + 2}, {});
  pipeline::Runner runner{{&bert}, dist::single_process().pipeline, params.grad_queue()};
  const auto targets = tensors_of(GetParam() / "gradients.safetensors");
  const tensor::Batch batch = batch_of(tensors_of(GetParam() / "logits.safetensors"), targets);
  const double words = batch.loss_mask.sum().item<double>();
  runner.train(plan::schedule_1f1b(1, 0, 1), {batch}, [&](const pipeline::LossTerm& term) {
    return 1 / (term.name == "lm loss" ? words : static_cast<double>(batch.ids.size(0)));
  });

  std::map<std::string, at::Tensor> theirs;
  for (const auto& [name, tensor] : targets)
    if (name.starts_with("grad.")) theirs[name.substr(5)] = tensor;
  const convert::TensorMap map = imported.model.codec->map(model, {.vocab_rows = model.vocabulary.size});
  const auto wanted = as_ours(map, theirs);
  double total = 0;
  for (const auto& [name, tensor] : wanted) total += tensor.square().sum().item<double>();
  total = std::sqrt(total);
  for (tensor::Param& param : params.params()) {
    at::Tensor ours = param.grad, expected = wanted.at(param.spec->name);
    if (param.spec->name.ends_with("query_key_value.bias")) {
      // Softmax does not see a shift of all scores of a query: a key's bias has no gradient.
      ours = ours.view({config.num_attention_heads, 3, -1}), expected = expected.view(ours.sizes());
      EXPECT_LE(ours.select(1, 1).norm().item<double>(), kZeroTolerance * total) << param.spec->name << ", keys";
      ours = at::stack({ours.select(1, 0), ours.select(1, 2)});
      expected = at::stack({expected.select(1, 0), expected.select(1, 2)});
    }
    EXPECT_LE((ours - expected).norm().item<double>(), kGradientTolerance * expected.norm().item<double>())
        << param.spec->name;
  }
}

}  // namespace bert_folders_test
}  // namespace espalier
