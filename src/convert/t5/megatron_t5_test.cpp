// T5s in checkpoints of Megatron's releases (tests/oracle/make_megatron_t5.py): their tensors, to the bit, from tensor
// and pipeline ranks and older orders of rows, and what their arguments make of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "convert/megatron/arguments.h"
#include "convert/megatron/import.h"
#include "convert/t5/formats.h"
#include "families/t5/config.h"
#include "store/safetensors.h"
#include "store/step_reader.h"
#include "store/torch_file.h"
#include "store/torch_file_writer.h"

namespace espalier::convert::megatron_t5_test {
namespace {

namespace fs = std::filesystem;
using spec::Activation;
using store::TorchPairs;
using store::TorchValue;
using testing::HasSubstr;
using Changes = std::vector<std::pair<std::string, TorchValue>>;

const fs::path kFiles = "tests/data/megatron-checkpoints";

TorchValue yes() { return TorchValue::boolean(true); }
TorchValue no() { return TorchValue::boolean(false); }

class MegatronT5 : public testing::Test {
 protected:
  MegatronT5() : folder_(fs::temp_directory_path() / ("espalier-mega-t5-" + std::to_string(::getpid()))) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~MegatronT5() override { fs::remove_all(folder_); }

  MegatronImportReport import(const fs::path& input, bool with_optimizer) {
    fs::remove_all(folder_ / "ours");
    return import_megatron({.input = input,
                            .save = folder_ / "ours",
                            .step = {},
                            .with_optimizer = with_optimizer,
                            .average_copies = false,
                            .train_options = {"--vocab-file", kFiles / "vocab.txt"}});
  }

  // The type, shape and bits of every tensor.
  static void expect_truth(const fs::path& step, const std::string& name) {
    const store::SafetensorsFile truth(kFiles / (name + ".truth.safetensors"));
    store::StepReader reader(step);
    EXPECT_EQ(reader.manifest().tensors.size(), truth.entries().size());
    for (const store::TensorEntry& entry : truth.entries()) {
      const store::StoredTensor* tensor = reader.manifest().find(entry.name);
      ASSERT_NE(tensor, nullptr) << entry.name;
      EXPECT_EQ(store::describe(*tensor), store::describe(entry.dtype, entry.shape)) << entry.name;
      std::string bytes(static_cast<size_t>(tensor->num_bytes()), '\0');
      for (size_t block = 0; block < tensor->blocks.size(); ++block)
        reader.read_block(*tensor, block, bytes.data() + tensor->blocks[block].offset);
      EXPECT_EQ(std::memcmp(bytes.data(), truth.data(entry), bytes.size()), 0) << entry.name;
    }
  }

  fs::path folder_;
};

TEST_F(MegatronT5, EveryTensorArrivesToTheBit) {
  struct Case {
    const char* name;
    int64_t tensor, pipeline;
    bool has_optimizer;
  };
  const Case cases[] = {{"t5-fp32-tp2pp4", 2, 4, true},
                        {"t5-fp32-tp2pp3", 2, 3, false},
                        {"t5-version1-tp2", 2, 1, false},
                        {"t5-version0", 1, 1, false}};
  for (const auto& [name, tensor, pipeline, has_optimizer] : cases) {
    SCOPED_TRACE(name);
    const MegatronImportReport report = import(kFiles / name, has_optimizer);
    EXPECT_EQ(report.files.tensor, tensor);
    EXPECT_EQ(report.files.pipeline, pipeline);
    EXPECT_EQ(report.has_optimizer, has_optimizer);
    EXPECT_TRUE(report.differences.empty());
    EXPECT_EQ(store::read_manifest(report.step_folder).model.family, "t5");
    expect_truth(report.step_folder, name);
  }
}

// The first stage of the decoder has the embeddings again; the first copy is used, and differences are reported.
TEST_F(MegatronT5, CopiesOfTheEmbeddingsThatDifferAreNamedByTheirStage) {
  const fs::path copy = folder_ / "t5-fp32-tp2pp4";
  fs::copy(kFiles / copy.filename(), copy, fs::copy_options::recursive);
  const fs::path file = copy / "iter_0000003/mp_rank_01_002/model_optim_rng.pt";
  const TorchValue root = store::read_torch_file(file);
  const TorchValue& positions = root.at("model").at("language_model").at("embedding").at("position_embeddings");
  const std::vector<float> zeros(16 * 8);
  const std::vector<int64_t> shape = positions.at("weight").view().shape;
  const TorchPairs weight = {{TorchValue::string("weight"),
                              TorchValue::tensor(store::source_of(store::DType::kFloat32, shape, zeros.data()))}};
  const TorchValue changed = TorchValue::dict(weight);
  const auto replaced = [](const TorchValue& tree, const char* key, const TorchValue& value) {
    TorchPairs pairs;
    for (const auto& [name, below] : tree.pairs()) pairs.emplace_back(name, name.as_string("") == key ? value : below);
    return TorchValue::dict(pairs);
  };
  const TorchValue& model = root.at("model");
  const TorchValue& language = model.at("language_model");
  const TorchValue embedding = replaced(language.at("embedding"), "position_embeddings", changed);
  store::write_torch_file(
      folder_ / "changed.pt",
      replaced(root, "model", replaced(model, "language_model", replaced(language, "embedding", embedding))));
  fs::rename(folder_ / "changed.pt", file);
  const MegatronImportReport report = import(copy, /*with_optimizer=*/false);
  ASSERT_EQ(report.differences.size(), 1u);
  EXPECT_EQ(report.differences[0].name, "position_embeddings.weight");
  EXPECT_EQ(report.differences[0].first, "tensor rank 0");
  EXPECT_EQ(report.differences[0].other, "tensor rank 1 of stage 2");
}

TEST_F(MegatronT5, WhatIsWrongOnTheCommandLineIsToldAsSuch) {
  try {
    import_megatron({.input = kFiles / "t5-version0",
                     .save = folder_ / "ours",
                     .step = {},
                     .with_optimizer = false,
                     .average_copies = false,
                     .train_options = {"--vocab-file", "missing.txt", "--bert-no-binary-head"}});
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_THAT(error.what(), HasSubstr("--vocab-file missing.txt (command line): there is no such file"));
    EXPECT_THAT(error.what(), HasSubstr("--bert-no-binary-head (command line) is not supported: only BERT reads it"));
  }
  EXPECT_FALSE(fs::exists(folder_ / "ours"));
}

families::T5Config model_with(const Changes& changes) {
  Changes all = {{"num_layers", TorchValue::integer(2)},
                 {"decoder_num_layers", TorchValue::integer(3)},
                 {"hidden_size", TorchValue::integer(8)},
                 {"num_attention_heads", TorchValue::integer(4)},
                 {"seq_length", TorchValue::integer(16)},
                 {"decoder_seq_length", TorchValue::integer(8)},
                 {"max_position_embeddings", TorchValue::integer(16)},
                 {"position_embedding_type", TorchValue::global("megatron.enums.PositionEmbeddingType.absolute")},
                 {"vocab_extra_ids", TorchValue::integer(5)},
                 {"group_query_attention", no()},
                 {"num_query_groups", TorchValue::integer(1)},
                 {"normalization", TorchValue::string("LayerNorm")},
                 {"swiglu", no()},
                 {"squared_relu", no()},
                 {"glu_activation", TorchValue()},
                 {"rotary_percent", TorchValue::real(1)},
                 {"window_size", TorchValue()},
                 {"micro_batch_size", TorchValue::integer(2)},
                 {"tokenizer_type", TorchValue::string("BertWordPieceLowerCase")},
                 {"vocab_file", TorchValue::string("vocab.txt")}};
  TorchPairs pairs;
  for (const auto& [name, value] : changes) all.emplace_back(name, value);
  for (auto entry = all.rbegin(); entry != all.rend(); ++entry) {
    const bool is_known = std::any_of(pairs.begin(), pairs.end(),
                                      [&](const auto& pair) { return pair.first.as_string("") == entry->first; });
    if (!is_known) pairs.emplace_back(TorchValue::string(entry->first), entry->second);
  }
  const TorchValue args = TorchValue::record("argparse.Namespace", {}, TorchValue::dict(pairs));
  return families::t5_config(megatron_options(args, "file", {}, t5_formats()).config);
}

std::string error_of(const Changes& changes) {
  try {
    model_with(changes);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(MegatronT5Names, OfMegatronCoreAreRead) {
  const auto name_of = [](const char* path) {
    const ModuleName found = t5_formats().megatron.module_name(path);
    return found.layer < 0 ? found.name : found.stack + "." + std::to_string(found.layer) + "." + found.name;
  };
  const std::pair<const char*, const char*> names[] = {
      {"embedding.word_embeddings.weight", "word_embeddings.weight"},
      {"encoder.layers.1.self_attention.linear_proj.weight", "encoder.layers.1.self_attention.dense.weight"},
      {"encoder.layers.1.pre_mlp_layernorm.bias", "encoder.layers.1.post_attention_layernorm.bias"},
      {"decoder.layers.0.self_attention.linear_qkv.bias", "decoder.layers.0.self_attention.query_key_value.bias"},
      {"decoder.layers.0.pre_cross_attn_layernorm.bias", "decoder.layers.0.post_attention_layernorm.bias"},
      {"decoder.layers.0.cross_attention.linear_q.weight", "decoder.layers.0.inter_attention.query.weight"},
      {"decoder.layers.0.cross_attention.linear_kv.bias", "decoder.layers.0.inter_attention.key_value.bias"},
      {"decoder.layers.0.cross_attention.linear_proj.bias", "decoder.layers.0.inter_attention.dense.bias"},
      {"decoder.layers.0.pre_mlp_layernorm.weight", "decoder.layers.0.post_inter_attention_layernorm.weight"},
      {"decoder.layers.0.mlp.linear_fc1.layer_norm_bias", "decoder.layers.0.post_inter_attention_layernorm.bias"},
      {"decoder.layers.0.mlp.linear_fc1.bias", "decoder.layers.0.mlp.dense_h_to_4h.bias"},
      {"decoder.final_layernorm.weight", "decoder.final_layernorm.weight"},
      {"lm_head.output_layer.bias", "lm_head.bias"},
      {"output_layer.bias", ""}};
  for (const auto& [theirs, ours] : names) EXPECT_EQ(name_of(theirs), ours) << theirs;
}

TEST(MegatronT5Arguments, AreRead) {
  const families::T5Config model = model_with({});
  EXPECT_EQ(model.decoder_num_layers, 3);
  EXPECT_EQ(model.activation, Activation::kGeluTanh);
  EXPECT_EQ(model.normalization, spec::Normalization::kLayerNorm);
  EXPECT_EQ(model_with({{"bias_gelu_fusion", no()}}).activation, Activation::kGeluErf);
  EXPECT_EQ(model_with({{"bias_gelu_fusion", no()}, {"squared_relu", yes()}}).activation, Activation::kSquaredRelu);
  EXPECT_EQ(model_with({{"bias_gelu_fusion", no()}, {"swiglu", yes()}}).activation, Activation::kSwiglu);
  EXPECT_EQ(model_with({{"glu_activation", TorchValue::string("geglu")}}).activation, Activation::kGeglu);
  EXPECT_EQ(model_with({{"normalization", TorchValue::string("RMSNorm")}}).normalization,
            spec::Normalization::kRmsNorm);
  EXPECT_FALSE(model_with({{"untie_embeddings_and_output_weights", yes()}}).tie_output);
  EXPECT_EQ(t5_formats().megatron.module_name("output_layer.weight").name, "lm_head.weight");
}

TEST(MegatronT5Arguments, OfOtherModelsAreRefusedWithTheReason) {
  EXPECT_THAT(error_of({{"use_rotary_position_embeddings", yes()}}), HasSubstr("the positions of a T5 do not rotate"));
  EXPECT_THAT(error_of({{"add_position_embedding", no()}}), HasSubstr("nor are they left out"));
  EXPECT_THAT(error_of({{"group_query_attention", yes()}}), HasSubstr("a key and a value head of its own"));
  EXPECT_THAT(error_of({{"embed_layernorm", yes()}}), HasSubstr("a T5 has no norm after its embeddings"));
  EXPECT_THAT(error_of({{"qk_layernorm", yes()}}), HasSubstr("no norm and no bias of their own"));
  EXPECT_THAT(error_of({{"add_qkv_bias", yes()}}), HasSubstr("no norm and no bias of their own"));
  EXPECT_THAT(error_of({{"window_size", TorchValue::tuple({TorchValue::integer(8), TorchValue::integer(0)})}}),
              HasSubstr("attention of a T5 has no window"));
}

}  // namespace
}  // namespace espalier::convert::megatron_t5_test
