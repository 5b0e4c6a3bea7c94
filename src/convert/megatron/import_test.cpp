// Checkpoints that Megatron-DeepSpeed's own code wrote (tests/oracle/make_megatron_checkpoints.py), against the whole
// tensors that the script put together with torch.cat.
#include "convert/megatron/import.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <regex>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "convert/megatron/export.h"
#include "store/diff.h"
#include "store/safetensors.h"
#include "store/step_reader.h"
#include "store/torch_file.h"
#include "store/torch_file_writer.h"

namespace espalier::convert {
namespace megatron_import_test {

namespace fs = std::filesystem;
using store::TorchItems;
using store::TorchPairs;
using store::TorchValue;

const fs::path kFolder = "tests/data/megatron-checkpoints";

class MegatronImportTest : public testing::Test {
 protected:
  MegatronImportTest() : folder_(fs::temp_directory_path() / ("espalier-mega-" + std::to_string(::getpid()))) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~MegatronImportTest() override { fs::remove_all(folder_); }

  MegatronImportReport import(const fs::path& input, bool with_optimizer = true, bool average = false) {
    fs::remove_all(folder_ / "ours");
    return import_megatron({.input = input,
                            .save = folder_ / "ours",
                            .step = {},
                            .with_optimizer = with_optimizer,
                            .average_copies = average,
                            .train_options = tokenizer_of(input)});
  }
  // BERTs have a vocabulary of their own.
  static std::vector<std::string> tokenizer_of(const fs::path& input) {
    for (const fs::path& part : input)
      if (part.string().starts_with("bert-")) return {"--vocab-file", kFolder / "vocab.txt"};
    return {"--vocab-file", kFolder / "vocab.json", "--merge-file", kFolder / "merges.txt"};
  }

  // A copy of a fixture, to be damaged.
  fs::path copy_of(const std::string& name) {
    const fs::path copy = folder_ / name;
    fs::remove_all(copy);
    fs::copy(kFolder / name, copy, fs::copy_options::recursive);
    return copy;
  }

  std::string error_of(const fs::path& input, bool with_optimizer = true) {
    try {
      import(input, with_optimizer);
    } catch (const UserError& error) {
      return error.what();
    }
    return "no error";
  }

  fs::path folder_;
};

std::string bytes_of(store::StepReader& reader, const store::StoredTensor& tensor) {
  std::string bytes(static_cast<size_t>(tensor.num_bytes()), '\0');
  for (size_t block = 0; block < tensor.blocks.size(); ++block)
    reader.read_block(tensor, block, bytes.data() + tensor.blocks[block].offset);
  return bytes;
}

// Every tensor of the truth is in the checkpoint, with its type, shape and bits, and nothing else is.
void expect_equal(const fs::path& step_folder, const fs::path& truth_path, bool with_optimizer) {
  const store::SafetensorsFile truth(truth_path);
  store::StepReader reader(step_folder);
  std::set<std::string> seen;
  for (const store::StoredTensor& tensor : reader.manifest().tensors) {
    const store::TensorEntry* entry = truth.find(tensor.name);
    ASSERT_NE(entry, nullptr) << tensor.name;
    seen.insert(tensor.name);
    EXPECT_EQ(store::describe(entry->dtype, entry->shape), store::describe(tensor)) << tensor.name;
    const std::string bytes = bytes_of(reader, tensor);
    ASSERT_EQ(static_cast<int64_t>(bytes.size()), entry->end - entry->begin) << tensor.name;
    EXPECT_EQ(std::memcmp(bytes.data(), truth.data(*entry), bytes.size()), 0) << tensor.name;
  }
  for (const store::TensorEntry& entry : truth.entries()) {
    const std::string ending = fs::path(entry.name).extension();
    const bool is_state = ending == ".master" || ending == ".exp_avg" || ending == ".exp_avg_sq";
    const bool is_weight_again = ending == ".master" && reader.manifest().model.compute_type == "fp32";
    EXPECT_TRUE(seen.contains(entry.name) || (is_state && !with_optimizer) || is_weight_again) << entry.name;
  }
}

struct Fixture {
  const char* name;
  const char* truth;
  const char* compute_type;
  int64_t tensor, pipeline, data;
};

TEST_F(MegatronImportTest, EveryTensorOfUpstreamsCheckpointsArrivesToTheBit) {
  const Fixture fixtures[] = {
      {"plain-fp32", "plain-fp32", "fp32", 1, 1, 1},
      {"plain-bf16-tp2pp2", "plain-bf16-tp2pp2", "bf16", 2, 2, 1},
      {"plain-fp16-tp2dp2", "plain-fp16-tp2dp2", "fp16", 2, 1, 1},  // the files are those of data rank 0
      {"deepspeed-fp32-pp2", "deepspeed-fp32-pp2", "fp32", 1, 2, 1},
      {"deepspeed-bf16-tp2pp2dp2", "deepspeed-bf16-tp2pp2dp2", "bf16", 2, 2, 2},
      {"deepspeed-bf16-tp2pp2dp2-universal", "deepspeed-bf16-tp2pp2dp2", "bf16", 1, 1, 1},
      {"deepspeed-bf16-stage0", "deepspeed-bf16-stage0", "bf16", 1, 1, 2},  // keeps its optimizer's state twice
      {"deepspeed-fp16-dp3", "deepspeed-fp16-dp3", "fp16", 1, 1, 3},
      {"bert-fp32-pp2", "bert-fp32-pp2", "fp32", 1, 2, 1},
      {"bert-bf16-tp2pp2", "bert-bf16-tp2pp2", "bf16", 2, 2, 1},
      {"bert-fp16-words", "bert-fp16-words", "fp16", 1, 1, 1},
  };
  for (const Fixture& fixture : fixtures) {
    SCOPED_TRACE(fixture.name);
    const MegatronImportReport report = import(kFolder / fixture.name);
    EXPECT_EQ(report.files.tensor, fixture.tensor);
    EXPECT_EQ(report.files.pipeline, fixture.pipeline);
    EXPECT_EQ(report.files.data, fixture.data);
    EXPECT_TRUE(report.has_optimizer);
    expect_equal(report.step_folder, kFolder / (std::string(fixture.truth) + ".truth.safetensors"), true);
    const store::Manifest manifest = store::read_manifest(report.step_folder);
    EXPECT_EQ(manifest.model.compute_type, fixture.compute_type);
    const std::string name = fixture.name;
    const bool is_bert = name.starts_with("bert-");
    EXPECT_EQ(manifest.model.family, is_bert ? "bert" : "gpt");
    EXPECT_EQ(manifest.model.vocab_size, is_bert ? 59 : 61);
    EXPECT_EQ(manifest.model.padded_vocab_size, 64);
    EXPECT_EQ(manifest.state.step, 3);
    EXPECT_EQ(manifest.state.optimizer_steps, 3);
    const int64_t batch = fixture.data == 3 ? 12 : 8;
    EXPECT_EQ(manifest.state.consumed_train_samples, 3 * batch);
    EXPECT_EQ(manifest.state.consumed_train_tokens, 3 * batch * 16);
    EXPECT_EQ(manifest.state.scheduler_samples, 3 * batch);
    EXPECT_NE(manifest.find_file(is_bert ? "tokenizer/vocab.txt" : "tokenizer/vocab.json"), nullptr);
    // Window 2, three clean steps: Megatron doubles 65536 at the second, DeepSpeed 2^12 at the third. The BERT's window
    // is the default, 1000.
    EXPECT_EQ(manifest.state.loss_scale, name == "plain-fp16-tp2dp2"    ? 131072
                                         : name == "deepspeed-fp16-dp3" ? 8192
                                         : name == "bert-fp16-words"    ? 65536
                                                                        : 1);
    EXPECT_EQ(manifest.state.loss_scale_growth_tracker, name == "plain-fp16-tp2dp2" ? 1
                                                        : name == "bert-fp16-words" ? 3
                                                                                    : 0);
  }
}

TEST_F(MegatronImportTest, WhatIsExportedInAnyLayoutComesBackToTheBit) {
  struct Layout {
    const char* fixture;
    MegatronFormat format;
    int64_t tensor, pipeline, data;
  };
  const Layout layouts[] = {
      {"plain-bf16-tp2pp2", MegatronFormat::kMegatron, 1, 1, 1},
      {"plain-bf16-tp2pp2", MegatronFormat::kMegatron, 4, 2, 1},
      {"plain-bf16-tp2pp2", MegatronFormat::kDeepSpeed, 2, 2, 3},
      {"plain-fp16-tp2dp2", MegatronFormat::kMegatron, 2, 1, 1},
      {"plain-fp32", MegatronFormat::kMegatron, 1, 2, 1},
      {"deepspeed-bf16-tp2pp2dp2", MegatronFormat::kDeepSpeed, 1, 1, 1},
      {"deepspeed-bf16-tp2pp2dp2", MegatronFormat::kDeepSpeed, 4, 2, 7},
      {"deepspeed-fp32-pp2", MegatronFormat::kDeepSpeed, 2, 1, 1},
      {"bert-fp32-pp2", MegatronFormat::kMegatron, 1, 1, 1},
      {"bert-fp32-pp2", MegatronFormat::kMegatron, 2, 2, 1},
      {"bert-bf16-tp2pp2", MegatronFormat::kMegatron, 4, 2, 1},
      {"bert-fp16-words", MegatronFormat::kMegatron, 2, 2, 1},
  };
  for (const Layout& layout : layouts) {
    SCOPED_TRACE(testing::Message() << layout.fixture << " tp" << layout.tensor << "pp" << layout.pipeline << "dp"
                                    << layout.data);
    const MegatronImportReport first = import(kFolder / layout.fixture);
    fs::remove_all(folder_ / "first");
    fs::rename(folder_ / "ours", folder_ / "first");
    fs::remove_all(folder_ / "theirs");
    const MegatronExportReport exported = export_megatron({.load = folder_ / "first",
                                                           .step = {},
                                                           .output = folder_ / "theirs",
                                                           .format = layout.format,
                                                           .tensor = layout.tensor,
                                                           .pipeline = layout.pipeline,
                                                           .data = layout.data});
    EXPECT_TRUE(exported.has_optimizer);
    fs::rename(folder_ / "theirs", folder_ / layout.fixture);
    const MegatronImportReport second = import(folder_ / layout.fixture);
    fs::remove_all(folder_ / layout.fixture);
    EXPECT_EQ(second.files.tensor, layout.tensor);
    EXPECT_EQ(second.files.pipeline, layout.pipeline);
    EXPECT_TRUE(second.differences.empty());
    const auto difference = store::diff_steps(folder_ / "first/step_00000003", second.step_folder);
    EXPECT_EQ(difference.num_compared, first.num_tensors);
    EXPECT_TRUE(difference.tensors.empty()) << difference.tensors[0].name;
    for (const std::string& field : difference.state) EXPECT_TRUE(field.starts_with("layout")) << field;
    EXPECT_EQ(store::read_manifest(second.step_folder).config.substr(0, 40),
              store::read_manifest(folder_ / "first/step_00000003").config.substr(0, 40));
  }
}

// A value of a tree replaced: keys lead to it.
TorchValue with(const TorchValue& root, const std::vector<std::string>& keys, const TorchValue& value, size_t at = 0) {
  if (at == keys.size()) return value;
  if (root.kind() == TorchValue::Kind::kRecord)
    return TorchValue::record(root.class_name(), root.items(), with(root.state(), keys, value, at));
  TorchPairs pairs;
  for (const auto& [key, below] : root.pairs())
    pairs.emplace_back(key,
                       key.is_string() && key.as_string("") == keys[at] ? with(below, keys, value, at + 1) : below);
  return TorchValue::dict(pairs, root.class_name());
}

void rewrite(const fs::path& file, const std::vector<std::string>& keys, const TorchValue& value) {
  const fs::path changed = file.string() + ".changed";
  store::write_torch_file(changed, with(store::read_torch_file(file), keys, value));
  fs::rename(changed, file);
}

TorchValue filled(const std::vector<int64_t>& shape, float value) {
  store::TensorSource source{.dtype = store::DType::kBFloat16, .shape = shape, .produce = {}};
  const auto bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
  source.produce = [bits, count = store::num_elements(shape)](const store::ByteSink& sink) {
    for (int64_t at = 0; at < count; ++at) sink(&bits, sizeof(bits));
  };
  return TorchValue::tensor(source);
}

// What upstream holds for versions below 2 is made here by moving rows as its loader moves them back.
TEST_F(MegatronImportTest, RowsOfOlderVersionsAreBroughtIntoOurOrder) {
  constexpr int64_t kHeads = 2, kSize = 2;  // of each of the two tensor ranks
  for (const double version : {0.0, 1.0}) {
    const fs::path copy = copy_of("plain-bf16-tp2pp2");
    for (const char* rank : {"mp_rank_00_000", "mp_rank_01_000", "mp_rank_00_001", "mp_rank_01_001"}) {
      const fs::path file = copy / "iter_0000003" / rank / "model_optim_rng.pt";
      rewrite(file, {"checkpoint_version"}, TorchValue::real(version));
      for (const std::string name : {"weight", "bias"}) {
        const std::string key = "layers.0.self_attention.query_key_value." + name;
        const TorchValue root = store::read_torch_file(file);
        const store::TensorView view = root.at("model").at("language_model").at("encoder").at(key).view();
        std::string rows(static_cast<size_t>(view.num_bytes()), '\0'), old = rows;
        store::TensorReader(view).read(rows.data());
        const auto row_bytes = rows.size() / (3 * kHeads * kSize);
        for (int64_t head = 0; head < kHeads; ++head)
          for (int64_t part = 0; part < 3; ++part)
            for (int64_t channel = 0; channel < kSize; ++channel) {
              const int64_t ours = (head * 3 + part) * kSize + channel;
              const int64_t theirs =
                  version == 0 ? (part * kHeads + head) * kSize + channel : (head * kSize + channel) * 3 + part;
              std::copy_n(rows.data() + static_cast<size_t>(ours) * row_bytes, row_bytes,
                          old.data() + static_cast<size_t>(theirs) * row_bytes);
            }
        rewrite(file, {"model", "language_model", "encoder", key},
                TorchValue::tensor(store::source_of(view.dtype, view.shape, old.data())));
      }
    }
    const MegatronImportReport report = import(copy, /*with_optimizer=*/false);
    expect_equal(report.step_folder, kFolder / "plain-bf16-tp2pp2.truth.safetensors", /*with_optimizer=*/false);
  }
}

TEST_F(MegatronImportTest, AMissingFileOfADeepSpeedCheckpointIsNamed) {
  const fs::path copy = copy_of("deepspeed-bf16-tp2pp2dp2"), step = copy / "global_step3";
  const std::string optimizer = "bf16_zero_pp_rank_1_mp_rank_02_optim_states.pt";
  fs::rename(step / optimizer, folder_ / optimizer);
  EXPECT_NE(error_of(copy).find("missing file: " + optimizer), std::string::npos) << error_of(copy);
  for (int rank = 0; rank < 4; ++rank)
    fs::remove(step / ("bf16_zero_pp_rank_1_mp_rank_0" + std::to_string(rank) + "_optim_states.pt"));
  std::string error = error_of(copy);
  EXPECT_NE(error.find("dp_world_size: expected 1, the data ranks with *zero_pp_rank_* files, found 2"),
            std::string::npos)
      << error;
  fs::remove(step / "layer_04-model_01-model_states.pt");
  error = error_of(copy);
  EXPECT_NE(error.find("missing file: layer_04-model_01-model_states.pt"), std::string::npos) << error;
}

TEST_F(MegatronImportTest, AMissingRankIsNamed) {
  const fs::path copy = copy_of("plain-bf16-tp2pp2");
  fs::remove(copy / "iter_0000003/mp_rank_01_000/model_optim_rng.pt");
  EXPECT_NE(error_of(copy).find("missing file: mp_rank_01_000/model_optim_rng.pt"), std::string::npos)
      << error_of(copy);
  fs::remove_all(copy / "iter_0000003/mp_rank_01_000");
  fs::remove_all(copy / "iter_0000003/mp_rank_01_001");
  const std::string error = error_of(copy);
  EXPECT_NE(error.find("args.tensor_model_parallel_size: expected 1, the tensor ranks with files, found 2"),
            std::string::npos)
      << error;
}

TEST_F(MegatronImportTest, FilesOfAnotherIterationAndOtherShapesAreNamedWithBothValues) {
  const fs::path copy = copy_of("plain-bf16-tp2pp2");
  const fs::path file = copy / "iter_0000003/mp_rank_01_001/model_optim_rng.pt";
  rewrite(file, {"iteration"}, TorchValue::integer(2));
  std::string error = error_of(copy);
  EXPECT_NE(error.find("mp_rank_01_001/model_optim_rng.pt: iteration: expected 3"), std::string::npos) << error;
  EXPECT_NE(error.find("found 2"), std::string::npos) << error;

  rewrite(file, {"iteration"}, TorchValue::integer(3));
  rewrite(file, {"model", "language_model", "encoder", "layers.0.mlp.dense_4h_to_h.weight"}, filled({8, 15}, 1));
  error = error_of(copy, /*with_optimizer=*/false);
  EXPECT_NE(error.find("layers.0.mlp.dense_4h_to_h.weight (layers.1.mlp.dense_4h_to_h.weight): expected shape [8, 16], "
                       "found [8, 15]"),
            std::string::npos)
      << error;
}

TEST_F(MegatronImportTest, CopiesThatDifferAreReportedAndTheFirstOrTheirMeanIsTaken) {
  const fs::path copy = copy_of("plain-bf16-tp2pp2");
  const std::vector<std::string> keys = {"model", "language_model", "encoder", "layers.0.input_layernorm.bias"};
  rewrite(copy / "iter_0000003/mp_rank_00_001/model_optim_rng.pt", keys, filled({8}, 0.25f));
  rewrite(copy / "iter_0000003/mp_rank_01_001/model_optim_rng.pt", keys, filled({8}, 0.5f));
  for (const bool average : {false, true}) {
    const MegatronImportReport report = import(copy, /*with_optimizer=*/false, average);
    ASSERT_EQ(report.differences.size(), 1u);
    EXPECT_EQ(report.differences[0].name, "layers.1.input_layernorm.bias");
    EXPECT_EQ(report.differences[0].other, "tensor rank 1");
    EXPECT_EQ(report.differences[0].num_different, 8);
    EXPECT_EQ(report.differences[0].largest_difference, 0.25);
    store::StepReader reader(report.step_folder);
    const std::string bytes = bytes_of(reader, *reader.manifest().find("layers.1.input_layernorm.bias"));
    uint16_t bits = 0;
    std::memcpy(&bits, bytes.data(), 2);
    EXPECT_EQ(std::bit_cast<float>(static_cast<uint32_t>(bits) << 16), average ? 0.375f : 0.25f);
  }
}

TorchValue floats(const std::vector<int64_t>& shape, const std::vector<float>& values) {
  store::TensorSource source{.dtype = store::DType::kFloat32, .shape = shape, .produce = {}};
  source.produce = [values](const store::ByteSink& sink) { sink(values.data(), values.size() * sizeof(float)); };
  return TorchValue::tensor(source);
}

// Copies of a tensor on the two tensor ranks: the first is all zeros.
TEST_F(MegatronImportTest, ANotANumberInACopyIsTheLargestDifferenceAndComesFirst) {
  const fs::path copy = copy_of("plain-bf16-tp2pp2");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::pair<std::string, std::vector<float>> copies[] = {
      {"layers.0.input_layernorm.weight", {0, 1, 0, 0, 0, 0, 0, 0}},
      {"layers.0.input_layernorm.bias", {nan, 1, 0, 0, 0, 0, 0, 0}},
      {"layers.0.post_attention_layernorm.weight", {0, 0, 2, 0, 0, 0, 0, 0}},
      {"layers.0.post_attention_layernorm.bias", {1, nan, 1, 0, 0, 0, 0, 0}}};
  for (const auto& [name, values] : copies) {
    const std::vector<std::string> keys = {"model", "language_model", "encoder", name};
    rewrite(copy / "iter_0000003/mp_rank_00_001/model_optim_rng.pt", keys, floats({8}, std::vector<float>(8, 0)));
    rewrite(copy / "iter_0000003/mp_rank_01_001/model_optim_rng.pt", keys, floats({8}, values));
  }
  const MegatronImportReport report = import(copy, /*with_optimizer=*/false);
  ASSERT_EQ(report.differences.size(), 4u);
  EXPECT_EQ(report.differences[0].num_different + report.differences[1].num_different, 5);
  EXPECT_TRUE(std::isnan(report.differences[0].largest_difference));
  EXPECT_TRUE(std::isnan(report.differences[1].largest_difference));
  EXPECT_EQ(report.differences[2].largest_difference, 2);
  EXPECT_EQ(report.differences[3].largest_difference, 1);
}

// As pickle of Python 3.11 (protocol 2) writes {"a._extra_state": io.BytesIO(b"ab\xff")}, in a file of torch < 1.6.
TEST_F(MegatronImportTest, StatesOfTransformerEngineAreReadAsRecordsThatDoNothing) {
  using std::string_literals::operator""s;
  const std::string head = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."s + "\x80\x02M\xe9\x03."s +
                           "\x80\x02}X\x0d\0\0\0little_endian\x88s."s;
  const std::string pickle =
      "\x80\x02}q\0X\x0e\0\0\0a._extra_stateq\1c_io\nBytesIO\nq\2)\x81q\3c_codecs\nencode\nq\4X\4\0\0\0"s +
      "ab\xc3\xbfq\5X\6\0\0\0latin1q\6\x86q\7Rq\x08K\0N\x87q\tbs."s;
  std::ofstream(folder_ / "state.pt", std::ios::binary) << head << pickle << "\x80\x02].";
  const TorchValue state = store::read_torch_file(folder_ / "state.pt").at("a._extra_state");
  EXPECT_EQ(state.kind(), TorchValue::Kind::kRecord);
  EXPECT_EQ(state.class_name(), "_io.BytesIO");
  EXPECT_EQ(state.state().items().at(0).bytes(), "ab\xff");
}

TEST_F(MegatronImportTest, StatesOfTransformerEngineAreLeftOut) {
  const TorchValue bytes = TorchValue::record(
      "_io.BytesIO", {}, TorchValue::tuple({TorchValue::bytes("ab"), TorchValue::integer(0), TorchValue()}));
  const fs::path copy = copy_of("plain-fp32");
  const fs::path file = copy / "iter_0000003/mp_rank_00/model_optim_rng.pt";
  const TorchValue root = store::read_torch_file(file);
  TorchPairs encoder;
  for (const auto& [key, value] : root.at("model").at("language_model").at("encoder").pairs()) {
    encoder.emplace_back(key, value);
    const std::string name = key.as_string("");
    if (name.ends_with(".weight"))
      encoder.emplace_back(TorchValue::string(name.substr(0, name.size() - 6) + "_extra_state"), bytes);
  }
  encoder.emplace_back(TorchValue::string("final_norm._extra_state"), filled({7}, 1));
  rewrite(file, {"model", "language_model", "encoder"}, TorchValue::ordered_dict(encoder));
  expect_equal(import(copy).step_folder, kFolder / "plain-fp32.truth.safetensors", /*with_optimizer=*/true);

  const fs::path deepspeed = copy_of("deepspeed-fp32-pp2"), step = deepspeed / "global_step3";
  for (const fs::directory_entry& entry : fs::directory_iterator(step)) {
    if (!entry.path().filename().string().starts_with("layer_")) continue;
    TorchPairs layer = store::read_torch_file(entry.path()).pairs();
    layer.emplace_back(TorchValue::string("_extra_state"), filled({7}, 1));
    layer.emplace_back(TorchValue::string("mlp._extra_state"), bytes);
    store::write_torch_file(folder_ / "layer.pt", TorchValue::ordered_dict(layer));
    fs::rename(folder_ / "layer.pt", entry.path());
  }
  expect_equal(import(deepspeed).step_folder, kFolder / "deepspeed-fp32-pp2.truth.safetensors", true);
}

TEST_F(MegatronImportTest, MomentsThatNothingConfirmsAreSaidToBeAssignedByOrder) {
  const auto says = [](const MegatronImportReport& report) {
    return std::any_of(report.remarks.begin(), report.remarks.end(), [](const std::string& remark) {
      return remark.find("assigned to parameters by their order") != std::string::npos;
    });
  };
  EXPECT_TRUE(says(import(kFolder / "plain-fp32")));
  EXPECT_FALSE(says(import(kFolder / "plain-fp32", /*with_optimizer=*/false)));
  EXPECT_FALSE(says(import(kFolder / "plain-bf16-tp2pp2")));
}

TEST_F(MegatronImportTest, WithoutALengthOfTheRunTheModelIsImported) {
  const fs::path copy = copy_of("plain-fp32");
  rewrite(copy / "iter_0000003/mp_rank_00/model_optim_rng.pt", {"args", "train_iters"}, TorchValue());
  const MegatronImportReport report = import(copy, /*with_optimizer=*/false);
  EXPECT_NE(store::read_manifest(report.step_folder).config.find("eval_only = true"), std::string::npos);
}

TEST_F(MegatronImportTest, AModelThatMegatronsArgumentsCannotSayIsNotExported) {
  import_megatron({.input = kFolder / "deepspeed-bf16-tp2pp2dp2",
                   .save = folder_ / "ours",
                   .step = {},
                   .with_optimizer = false,
                   .train_options = {"--position-embedding-type", "rotary", "--rope-scaling-type", "linear",
                                     "--rope-scaling-factor", "2"}});
  try {
    export_megatron({.load = folder_ / "ours", .step = {}, .output = folder_ / "theirs"});
    FAIL() << "no error";
  } catch (const UserError& error) {
    const std::string said = error.what();
    EXPECT_NE(said.find("--rope-scaling-type linear --rope-scaling-factor 2"), std::string::npos) << said;
    EXPECT_EQ(said.find("cannot express it"), said.rfind("cannot express it")) << "one problem once: " << said;
  }
  EXPECT_FALSE(fs::exists(folder_ / "theirs"));
}

// An attempt that was killed left a part; one that fails leaves nothing; what exists is not replaced.
TEST_F(MegatronImportTest, AnExportHasItsNameOnlyWhenItIsWhole) {
  import(kFolder / "plain-fp32");
  const MegatronExport request{.load = folder_ / "ours", .step = {}, .output = folder_ / "theirs"};
  fs::create_directories(folder_ / "theirs/iter_0000003.partial/mp_rank_00");
  std::ofstream(folder_ / "theirs/iter_0000003.partial/.lock") << "";
  std::ofstream(folder_ / "theirs/iter_0000003.partial/mp_rank_07") << "rest";
  const MegatronExportReport report = export_megatron(request);
  EXPECT_EQ(report.folder, folder_ / "theirs/iter_0000003");
  std::set<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_ / "theirs"))
    names.insert(entry.path().filename());
  EXPECT_EQ(names, (std::set<std::string>{"iter_0000003", "latest_checkpointed_iteration.txt"}));
  names.clear();
  for (const fs::directory_entry& entry : fs::directory_iterator(report.folder)) names.insert(entry.path().filename());
  EXPECT_EQ(names, (std::set<std::string>{"mp_rank_00"}));
  EXPECT_THROW(export_megatron(request), UserError);

  // A block of the checkpoint is damaged: its checksum ends the export in the middle.
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder_ / "ours")) {
    if (!entry.is_regular_file() || !entry.path().filename().string().starts_with("weights")) continue;
    std::fstream file(entry.path(), std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(-1, std::ios::end);
    file.put('?');
  }
  EXPECT_THROW(export_megatron({.load = folder_ / "ours", .step = {}, .output = folder_ / "others"}), UserError);
  EXPECT_TRUE(!fs::exists(folder_ / "others") || fs::is_empty(folder_ / "others"));
}

TEST_F(MegatronImportTest, AnOptimizerOfOtherWeightsIsRefused) {
  const fs::path copy = copy_of("plain-bf16-tp2pp2");
  rewrite(copy / "iter_0000003/mp_rank_00_000/model_optim_rng.pt",
          {"model", "language_model", "encoder", "layers.0.mlp.dense_h_to_4h.weight"}, filled({16, 8}, 1));
  const std::string error = error_of(copy);
  EXPECT_NE(
      error.find("layers.0.mlp.dense_h_to_4h.weight: expected the optimizer's fp32 copy to round to the BF16 weight, "
                 "found 128 of 256 elements that do not"),
      std::string::npos)
      << error;
}

TEST_F(MegatronImportTest, AFolderWithoutACheckpointSaysWhatWasExpected) {
  const std::string error = error_of(folder_);
  EXPECT_NE(error.find("expected latest_checkpointed_iteration.txt, latest, latest_universal"), std::string::npos)
      << error;
}

}  // namespace megatron_import_test
}  // namespace espalier::convert
