// Hugging Face folders against transformers: what is imported computes transformers' logits, what goes through a
// checkpoint comes back to the byte, and the check of logits sees every mistake a conversion could make.
// tests/oracle/hf_folders_oracle.py made tests/data/hf; with ESPALIER_FRESH_ORACLES=DIR the folders of DIR/hf are tried
// as well.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "convert/formats.h"
#include "convert/hf/export.h"
#include "convert/hf/import.h"
#include "infer/compare_logits.h"
#include "infer/hf_reference.h"
#include "store/diff.h"
#include "store/manifest.h"
#include "store/weight_folder.h"

namespace espalier {
namespace hf_folders_test {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr double kTolerance = 1e-5;  // of the largest logit: what fp32 leaves between two orders of summation

std::vector<fs::path> folders() {
  std::vector<fs::path> roots = {"tests/data/hf"}, found;
  if (const char* fresh = std::getenv("ESPALIER_FRESH_ORACLES"))
    for (const char* kind : {"hf", "hf_bert"}) roots.push_back(fs::path(fresh) / kind);
  for (const fs::path& root : roots)
    if (fs::exists(root))
      for (const auto& entry : fs::directory_iterator(root)) found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

std::string name_of_case(const testing::TestParamInfo<fs::path>& info) {
  return info.param.parent_path().parent_path().filename() == "data" ? info.param.filename().string()
                                                                     : "fresh_" + info.param.filename().string();
}

at::Tensor read_tensor(const store::TensorView& view) {
  const at::Tensor tensor = at::empty(view.shape, view.dtype == store::DType::kInt64 ? at::kLong : at::kFloat);
  store::TensorReader(view).read(tensor.data_ptr());
  return tensor;
}

// The inputs are whole numbers, the results are not.
struct Expected {
  models::NamedTensors inputs, outputs;
};
Expected expected_of(const fs::path& folder) {
  Expected expected;
  for (const auto& [name, view] : store::open_weights(folder / "logits.safetensors"))
    (view.dtype == store::DType::kInt64 ? expected.inputs : expected.outputs)[name] = read_tensor(view);
  return expected;
}

double distance(const at::Tensor& found, const at::Tensor& expected) {
  return ((found - expected).abs().max() / expected.abs().max()).item<double>();
}

void expect_near(const models::NamedTensors& found, const models::NamedTensors& expected) {
  EXPECT_EQ(found.size(), expected.size());
  for (const auto& [name, tensor] : expected) EXPECT_LE(distance(found.at(name), tensor), kTolerance) << name;
}

class TemporaryFolder {
 public:
  TemporaryFolder() : path_(fs::temp_directory_path() / ("espalier_hf_" + std::to_string(::getpid()))) {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~TemporaryFolder() { fs::remove_all(path_); }
  // A new folder of that name.
  fs::path make(const std::string& name) const {
    fs::create_directories(path_ / name);
    return path_ / name;
  }

 private:
  fs::path path_;
};

fs::path import_into(const fs::path& folder, const fs::path& run) {
  return convert::import_hf({.input = folder, .save = run, .dtype = {}, .pad_vocab_size_to = {}}, run).step_folder;
}

void export_into(const fs::path& step, const fs::path& folder, bool keep_padding = false) {
  convert::export_hf({.step_folder = step, .dtype = {}, .keep_vocab_padding = keep_padding}, folder);
}

// What releases stored besides the model: buffers, copies, a pooler that no head uses.
bool is_no_part(const std::string& name, const std::map<std::string, store::TensorView>& views) {
  for (const char* ending : {".attn.bias", ".masked_bias", "inv_freq", "position_ids"})
    if (name.ends_with(ending)) return true;
  return name.starts_with("cls.predictions.decoder.") ||
         (name.starts_with("bert.pooler.") && !views.contains("cls.seq_relationship.weight"));
}

std::string present_name(std::string name) {
  for (const auto& [old, present] : {std::pair{".gamma", ".weight"}, {".beta", ".bias"}})
    if (name.ends_with(old)) name.replace(name.rfind('.'), std::string::npos, present);
  return name;
}

// Tensors by their names within the base model, as bytes.
std::map<std::string, std::string> bytes_of(const fs::path& folder) {
  std::map<std::string, std::string> tensors;
  const auto views = store::open_weights(folder);
  for (const auto& [theirs, view] : views) {
    if (is_no_part(theirs, views)) continue;
    const std::string name = present_name(theirs);
    std::string bytes(static_cast<size_t>(view.num_bytes()), '\0');
    store::TensorReader(view).read(bytes.data());
    const std::string prefix = name.starts_with("transformer.") ? "transformer."
                               : name.starts_with("model.")     ? "model."
                                                                : "";
    tensors[name.substr(prefix.size())] = store::describe(view.dtype, view.shape) + bytes;
  }
  return tensors;
}

class HfFolder : public testing::TestWithParam<fs::path> {};
INSTANTIATE_TEST_SUITE_P(Oracle, HfFolder, testing::ValuesIn(folders()), name_of_case);

TEST_P(HfFolder, ReferenceComputesTransformersLogits) {
  const Expected expected = expected_of(GetParam());
  expect_near(infer::hf_reference(GetParam(), expected.inputs, {}), expected.outputs);
}

TEST_P(HfFolder, ImportComputesTransformersLogits) {
  const TemporaryFolder temporary;
  const Expected expected = expected_of(GetParam());
  const fs::path step = import_into(GetParam(), temporary.make("run"));
  expect_near(infer::checkpoint_outputs(step, expected.inputs), expected.outputs);
}

TEST_P(HfFolder, ImportAndExportGiveBackEveryByte) {
  const TemporaryFolder temporary;
  const fs::path step = import_into(GetParam(), temporary.make("run")), back = temporary.make("back");
  export_into(step, back);
  const auto before = bytes_of(GetParam()), after = bytes_of(back);
  for (const auto& [name, bytes] : before)
    EXPECT_TRUE(after.contains(name) && after.at(name) == bytes) << name << " is not what it was";
  EXPECT_EQ(before.size(), after.size());
  EXPECT_TRUE(infer::compare_logits(step, back, {infer::Conversion::kExport}).equal());

  const fs::path again = import_into(back, temporary.make("again"));
  const store::CheckpointDifference difference = store::diff_steps(step, again);
  EXPECT_TRUE(difference.tensors.empty()) << difference.tensors.size() << " tensors differ";
  EXPECT_EQ(store::read_manifest(step).model.padded_vocab_size, store::read_manifest(again).model.padded_vocab_size);
}

TEST(HfImport, PadsTheVocabularyWithZeroRowsAndExportDropsThem) {
  const TemporaryFolder temporary;
  const fs::path folder = "tests/data/hf/gpt2", run = temporary.make("run"), back = temporary.make("back");
  const fs::path step =
      convert::import_hf({.input = folder, .save = run, .dtype = {}, .make_vocab_size_divisible_by = 40}, run)
          .step_folder;
  EXPECT_EQ(store::read_manifest(step).find("word_embeddings.weight")->shape, (std::vector<int64_t>{40, 15}));
  const Expected expected = expected_of(folder);
  const at::Tensor found = infer::checkpoint_outputs(step, expected.inputs).at("logits");
  EXPECT_LE(distance(found.narrow(2, 0, 31), expected.outputs.at("logits")), kTolerance);
  EXPECT_EQ(found.narrow(2, 31, 9).abs().max().item<double>(), 0);
  export_into(step, back);
  EXPECT_EQ(bytes_of(back), bytes_of(folder));
  const fs::path padded = temporary.make("padded");
  export_into(step, padded, /*keep_padding=*/true);
  EXPECT_EQ(store::open_weights(padded).at("transformer.wte.weight").shape, (std::vector<int64_t>{40, 15}));
}

TEST(HfImport, RoundsToAnotherTypeAndStillComparesLogits) {
  const TemporaryFolder temporary;
  const fs::path run = temporary.make("run"), back = temporary.make("back");
  const fs::path step =
      convert::import_hf({.input = "tests/data/hf/gpt2", .save = run, .dtype = store::DType::kBFloat16}, run)
          .step_folder;
  EXPECT_EQ(store::read_manifest(step).model.compute_type, "bf16");
  EXPECT_TRUE(infer::compare_logits(step, "tests/data/hf/gpt2", {infer::Conversion::kImport}).equal());
  convert::export_hf({.step_folder = step, .dtype = store::DType::kFloat32}, back);
  EXPECT_EQ(store::open_weights(back).at("transformer.wte.weight").dtype, store::DType::kFloat32);
  EXPECT_TRUE(infer::compare_logits(step, back, {infer::Conversion::kExport}).equal());
}

// A copy of a folder with something wrong in it: what a wrong conversion would have written.
class Mistake {
 public:
  using Tensors = std::map<std::string, at::Tensor>;
  using Change = std::function<void(Json& config, Tensors& tensors)>;

  // True where the comparison of logits sees it.
  static bool is_seen(const char* folder_name, const Change& change) {
    const TemporaryFolder temporary;
    const fs::path source = fs::path("tests/data/hf") / folder_name, wrong = temporary.make("wrong");
    const fs::path step = import_into(source, temporary.make("run"));
    EXPECT_TRUE(infer::compare_logits(step, source, {infer::Conversion::kImport}).equal());
    Json config = Json::parse(read_file(source / "config.json"));
    Tensors tensors;
    for (const auto& [name, view] : store::open_weights(source)) tensors[name] = as_float(view);
    change(config, tensors);
    write_file_atomically(wrong / "config.json", config.dump());
    std::vector<std::pair<std::string, store::TensorSource>> sources;
    for (auto& [name, tensor] : tensors) {
      tensor = tensor.contiguous();
      sources.emplace_back(name, store::source_of(store::DType::kFloat32, tensor.sizes().vec(), tensor.data_ptr()));
    }
    store::write_weights(wrong, sources, int64_t{1} << 30);
    return !infer::compare_logits(step, wrong, {infer::Conversion::kImport}).equal();
  }

 private:
  static at::Tensor as_float(const store::TensorView& view) {
    const auto type = view.dtype == store::DType::kFloat32    ? at::kFloat
                      : view.dtype == store::DType::kBFloat16 ? at::kBFloat16
                                                              : at::kHalf;
    const at::Tensor tensor = at::empty(view.shape, type);
    store::TensorReader(view).read(tensor.data_ptr());
    return tensor.to(at::kFloat);
  }
};

TEST(HfMistake, NoneIsSeenWhereNothingIsWrong) {
  EXPECT_FALSE(Mistake::is_seen("gpt2", [](Json&, Mistake::Tensors&) {}));
}

TEST(HfMistake, SwappedQueryAndKeyAreSeen) {
  EXPECT_TRUE(Mistake::is_seen("gpt2", [](Json&, Mistake::Tensors& tensors) {
    at::Tensor& weight = tensors.at("transformer.h.1.attn.c_attn.weight");
    const auto parts = weight.chunk(3, 1);
    weight = at::cat({parts[1], parts[0], parts[2]}, 1);
  }));
}

TEST(HfMistake, DroppedBiasIsSeen) {
  EXPECT_TRUE(Mistake::is_seen("bloom", [](Json&, Mistake::Tensors& tensors) {
    tensors.at("transformer.h.0.self_attention.dense.bias").zero_();
  }));
}

TEST(HfMistake, UntiedHeadIsSeen) {
  EXPECT_TRUE(Mistake::is_seen("gpt2", [](Json& config, Mistake::Tensors& tensors) {
    config["tie_word_embeddings"] = false;
    tensors["lm_head.weight"] = tensors.at("transformer.wte.weight") + 0.01;
  }));
}

TEST(HfMistake, WrongEpsilonIsSeen) {
  EXPECT_TRUE(Mistake::is_seen("gpt2", [](Json& config, Mistake::Tensors&) { config["layer_norm_epsilon"] = 1e-5; }));
}

TEST(HfMistake, TransposedWeightIsSeen) {
  EXPECT_TRUE(Mistake::is_seen("gpt2", [](Json&, Mistake::Tensors& tensors) {
    at::Tensor& weight = tensors.at("transformer.h.0.attn.c_proj.weight");
    weight = weight.t();
  }));
}

TEST(HfMistake, WrongRopeIsSeen) {
  EXPECT_TRUE(Mistake::is_seen(
      "llama", [](Json& config, Mistake::Tensors&) { config["rope_parameters"]["rope_theta"] = 10000.0; }));
  EXPECT_TRUE(Mistake::is_seen(
      "llama", [](Json& config, Mistake::Tensors&) { config["rope_parameters"]["rope_type"] = "default"; }));
}

TEST(HfMistake, DroppedBiasOfQueryIsSeen) {
  EXPECT_TRUE(Mistake::is_seen(
      "qwen2", [](Json&, Mistake::Tensors& tensors) { tensors.at("model.layers.1.self_attn.q_proj.bias").zero_(); }));
}

}  // namespace hf_folders_test
}  // namespace espalier
