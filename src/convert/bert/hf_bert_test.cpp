// BERTs of transformers: config.json of published models, what is refused, which tensors there are, and tokenizers.
// (That the tensors are the right ones is compared with transformers in tests/golden.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "convert/formats.h"
#include "convert/hf/config.h"
#include "families/bert/config.h"

namespace espalier::convert::hf_bert_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using spec::Activation;
using testing::HasSubstr;

// bert-base-uncased, as its authors wrote it.
constexpr const char* kBase = R"({"architectures": ["BertForMaskedLM"], "attention_probs_dropout_prob": 0.1,
  "gradient_checkpointing": false, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768,
  "initializer_range": 0.02, "intermediate_size": 3072, "layer_norm_eps": 1e-12, "max_position_embeddings": 512,
  "model_type": "bert", "num_attention_heads": 12, "num_hidden_layers": 12, "pad_token_id": 0,
  "position_embedding_type": "absolute", "transformers_version": "4.6.0.dev0", "type_vocab_size": 2,
  "use_cache": true, "vocab_size": 30522})";

const std::set<std::string> kBothHeads = {"bert.pooler.dense.weight", "cls.predictions.bias",
                                          "cls.seq_relationship.weight"};

std::string with(const char* text, const Json& changes) {
  Json json = Json::parse(text);
  json.update(changes);
  return json.dump();
}

HfModel read(const std::string& text, const std::set<std::string>& names = kBothHeads) {
  return read_hf_config(text, "config.json", {.names = &names});
}
families::BertConfig bert(const HfModel& model) {
  return families::bert_config(model.config.settings, model.config.vocabulary);
}

std::string refusal(const Json& changes, const std::set<std::string>& names = kBothHeads) {
  try {
    read(with(kBase, changes), names);
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kBadData);
    return error.what();
  }
  return "no error";
}

TEST(HfBert, ReadsTheConfigurationOfAPublishedModel) {
  const HfModel model = read(kBase);
  const families::BertConfig config = bert(model);
  EXPECT_EQ(config.num_layers, 12);
  EXPECT_EQ(config.kv_channels, 64);
  EXPECT_EQ(config.ffn_hidden_size, 3072);
  EXPECT_EQ(config.max_position_embeddings, 512);
  EXPECT_EQ(config.num_tokentypes, 2);
  EXPECT_EQ(config.layernorm_epsilon, 1e-12);
  EXPECT_EQ(config.vocab_size, 30522);
  EXPECT_EQ(config.activation, Activation::kGeluErf);
  EXPECT_EQ(config.head_activation, Activation::kGeluErf);
  EXPECT_TRUE(config.residual_from_layernorm);
  EXPECT_TRUE(config.binary_head) << "the weights have it, whatever the class";
  ASSERT_EQ(model.notes.size(), 1u);
  EXPECT_THAT(model.notes[0], HasSubstr("dropped out before their norm"));
}

TEST(HfBert, TheWeightsTellWhichHeadsThereAre) {
  EXPECT_FALSE(bert(read(kBase, {"cls.predictions.bias"})).binary_head);
  const HfModel pooled = read(kBase, {"cls.predictions.bias", "bert.pooler.dense.weight"});
  EXPECT_FALSE(bert(pooled).binary_head);
  EXPECT_THAT(pooled.notes, testing::Contains(HasSubstr("bert.pooler is left out")));
  EXPECT_TRUE(pooled.codec->leaves_out("bert.pooler.dense.bias", pooled.config));
  // What its class promises is missed where it does not exist.
  EXPECT_TRUE(
      bert(read(with(kBase, {{"architectures", {"BertForPreTraining"}}}), {"cls.predictions.bias"})).binary_head);
  EXPECT_THAT(refusal(Json::object(), {"bert.pooler.dense.weight"}),
              HasSubstr("no masked-LM head (cls.predictions.*)"));
}

TEST(HfBert, ReadsMegatronsWithoutADifferenceOfDropout) {
  const HfModel model = read(with(kBase, {{"model_type", "megatron-bert"},
                                          {"architectures", {"MegatronBertForPreTraining"}},
                                          {"hidden_act", "gelu_new"}}));
  EXPECT_FALSE(bert(model).residual_from_layernorm);
  EXPECT_EQ(bert(model).activation, Activation::kGeluTanh);
  EXPECT_EQ(bert(model).head_activation, Activation::kGeluTanh);
  EXPECT_TRUE(model.notes.empty()) << model.notes[0];
}

TEST(HfBert, RefusesByNameWhatChangesTheModel) {
  const auto expect = [](const Json& change, const char* part) { EXPECT_THAT(refusal(change), HasSubstr(part)); };
  expect({{"position_embedding_type", "relative_key"}}, "position_embedding_type: \"relative_key\" is not supported");
  expect({{"is_decoder", true}}, "is_decoder: true is not supported: every token of a BERT sees all others");
  expect({{"tie_word_embeddings", false}}, "tie_word_embeddings: false is not supported");
  expect({{"hidden_act", "relu"}}, "hidden_act: relu is not supported: the activation of a BERT is gelu");
  expect({{"hidden_act", "mish"}}, "hidden_act: 'mish' is not supported");
  expect({{"hidden_size", 770}}, "num_attention_heads: 12 does not divide hidden_size 770");
  expect({{"type_vocab_size", 1}}, "type_vocab_size: 1: the two halves of a sample need 2 token types");
  expect({{"architectures", {"BertForSequenceClassification"}}},
         "'BertForSequenceClassification' is not supported; BertForPreTraining and BertForMaskedLM are");
  expect({{"add_cross_attention", true}}, "add_cross_attention: true is not supported");
  const std::string all = refusal({{"hidden_size", 0}, {"is_decoder", true}, {"layer_norm_eps", 7}});
  for (const char* key : {"hidden_size", "is_decoder", "layer_norm_eps"}) EXPECT_THAT(all, HasSubstr(key));
}

TEST(HfBert, WritesWhatItReads) {
  for (const char* type : {"bert", "megatron-bert"})
    for (const int types : {2, 5}) {
      const std::string prefix = std::string(type) == "bert" ? "Bert" : "MegatronBert";
      const std::string text = with(kBase, {{"model_type", type},
                                            {"architectures", {prefix + "ForMaskedLM"}},
                                            {"type_vocab_size", types},
                                            {"hidden_act", "gelu_pytorch_tanh"},
                                            {"my_own_key", 1}});
      const HfModel model = read(text, {"cls.predictions.bias"});
      EXPECT_TRUE(model.codec->obstacles(model.config).empty());
      EXPECT_EQ(&choose_hf_codec(model.config, nullptr), model.codec);
      const std::string written = hf_config_json(model, text);
      const HfModel again = read(written, {"cls.predictions.bias"});
      EXPECT_EQ(bert(again), bert(model)) << written;
      EXPECT_EQ(again.codec, model.codec);
      EXPECT_EQ(Json::parse(written).at("my_own_key"), 1);
      EXPECT_EQ(Json::parse(written).at("architectures").at(0), prefix + "ForMaskedLM");
    }
}

TEST(HfBert, AModelWithTwoFormsOfGeluSaysHowToWriteOne) {
  HfModel model = read(kBase);
  model.config.settings.as<families::BertSettings>().shape.activation = Activation::kGeluTanh;
  try {
    choose_hf_codec(model.config, nullptr);
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("bert, where layers and masked-LM head have one form of gelu"));
    EXPECT_THAT(error.what(), HasSubstr("-- --openai-gelu"));
  }
}

// Every element of both sides has one place: TensorMap::check() counts them.
TEST(HfBert, TheMapHasEveryTensorOfEachLayout) {
  HfModel model = read(with(kBase, {{"num_hidden_layers", 2},
                                    {"hidden_size", 14},
                                    {"num_attention_heads", 7},
                                    {"intermediate_size", 23},
                                    {"vocab_size", 33}}));
  model.config.vocabulary.padded_size = 40;
  const HfCodec& codec = *model.codec;
  const TensorMap written = codec.map(model.config, {.vocab_rows = 33});
  EXPECT_EQ(written.theirs.size(), 5u + 2 * 16 + 5 + 4);
  EXPECT_TRUE(written.theirs.has("bert.encoder.layer.1.output.LayerNorm.weight"));
  EXPECT_FALSE(written.theirs.has("cls.predictions.decoder.weight"));
  ASSERT_EQ(written.our_padding.size(), 2u);
  for (const Padding& padding : written.our_padding) {
    const bool is_bias = written.ours[padding.tensor].name == "lm_head.bias";
    EXPECT_EQ(padding.count, is_bias ? 7 : 7 * 14);
    EXPECT_EQ(padding.value, is_bias ? -10'000 : 0) << "so that no row of padding is ever predicted";
  }
  const std::set<std::string> old = {"bert.embeddings.LayerNorm.gamma", "cls.predictions.decoder.weight",
                                     "cls.predictions.decoder.bias"};
  const TensorMap of_old = codec.map(model.config, {.vocab_rows = 33, .names = &old});
  EXPECT_TRUE(of_old.theirs.has("bert.embeddings.LayerNorm.beta"));
  EXPECT_TRUE(of_old.theirs.has("cls.predictions.decoder.weight"));
  EXPECT_FALSE(of_old.theirs.has("cls.predictions.bias")) << "the only bias is the decoder's";

  families::BertSettings& settings = model.config.settings.as<families::BertSettings>();
  settings.shape.binary_head = false, settings.shape.num_tokentypes = 0;
  const TensorMap without_types = codec.map(model.config, {.vocab_rows = 33});
  const size_t types = without_types.theirs.number_of("bert.embeddings.token_type_embeddings.weight");
  EXPECT_EQ(without_types.theirs[types].shape, (std::vector<int64_t>{1, 14}));
  ASSERT_EQ(without_types.their_padding.size(), 1u);
  EXPECT_EQ(without_types.their_padding[0].count, 14) << "a row of zeros";
}

class BertTokenizerFiles : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }
  FoundTokenizer found(int64_t rows) const {
    return find_tokenizer(folder_, rows, "/kept", find_hf_codec("bert")->run_tokenizer);
  }
  const fs::path folder_ = fs::temp_directory_path() / ("espalier_bert_files_" + std::to_string(::getpid()));
  const std::string pieces_ = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n##b\n";
  const std::string config_ = R"({"do_lower_case": false})";
};

TEST_F(BertTokenizerFiles, AVocabularyIsReadAsMegatronsWordPiece) {
  write_file_atomically(folder_ / "vocab.txt", pieces_);
  FoundTokenizer tokenizer = found(7);
  EXPECT_EQ(tokenizer.options.type, "BertWordPieceLowerCase");
  EXPECT_EQ(tokenizer.options.vocab_file, "/kept/vocab.txt");
  EXPECT_EQ(tokenizer.vocab_size, 7);
  EXPECT_EQ(tokenizer.num_rows, 9) << "[BOS] and [EOS]";
  EXPECT_TRUE(tokenizer.notes.empty()) << tokenizer.notes[0];
  write_file_atomically(folder_ / "tokenizer_config.json", config_);
  EXPECT_EQ(found(7).options.type, "BertWordPieceCase");
}

// transformers 5 saves tokenizer.json alone.
TEST_F(BertTokenizerFiles, AVocabularyIsMadeOfAPlainWordPiece) {
  const Json vocabulary = {{"[PAD]", 0}, {"[UNK]", 1}, {"[CLS]", 2}, {"[SEP]", 3}, {"[MASK]", 4}, {"##b", 6}, {"a", 5}};
  Json json = {{"normalizer", {{"type", "BertNormalizer"}, {"lowercase", false}}},
               {"model", {{"type", "WordPiece"}, {"vocab", vocabulary}}}};
  write_file_atomically(folder_ / "tokenizer.json", json.dump());
  FoundTokenizer tokenizer = found(7);
  EXPECT_EQ(tokenizer.options.type, "BertWordPieceCase");
  EXPECT_EQ(tokenizer.num_rows, 9);
  ASSERT_EQ(tokenizer.files.size(), 2u);
  EXPECT_EQ(tokenizer.files[1].path, "tokenizer/vocab.txt");
  EXPECT_EQ(tokenizer.files[1].content, pieces_);
  // Ids with a gap, or another normalizer, are not vocab.txt.
  json["model"]["vocab"]["a"] = 9;
  write_file_atomically(folder_ / "tokenizer.json", json.dump());
  EXPECT_EQ(found(7).options.type, "PretrainedFromHF");
  json["model"]["vocab"]["a"] = 5, json["normalizer"] = {{"type", 7}};
  write_file_atomically(folder_ / "tokenizer.json", json.dump());
  EXPECT_EQ(found(7).options.type, "PretrainedFromHF");
}

// A run whose own tokenizer.json puts nothing around a text: its samples have [CLS] and [SEP] anyway.
TEST_F(BertTokenizerFiles, AnExportPutsClsAndSepAroundATextAndKeepsWhatMovesOffsets) {
  fs::copy_file("tests/data/megatron_tokenizers/hf_bert/tokenizer.json", folder_ / "tokenizer.json");
  write_file_atomically(folder_ / "tokenizer_config.json", R"({"cls_token": "[CLS]", "sep_token": "[SEP]"})");
  const auto tokenizer = text::load_tokenizer({.type = "PretrainedFromHF", .name_or_path = folder_});
  const HfModel model = read(kBase);
  nlohmann::ordered_json with_bytes = {{"post_processor", {{"type", "ByteLevel"}, {"trim_offsets", false}}}};
  nlohmann::ordered_json without = {{"post_processor", nullptr}}, config;
  model.codec->complete_tokenizer(*tokenizer, model.config, without, config);
  EXPECT_EQ(without["post_processor"]["type"], "TemplateProcessing");
  model.codec->complete_tokenizer(*tokenizer, model.config, with_bytes, config);
  const nlohmann::ordered_json& both = with_bytes["post_processor"]["processors"];
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0]["trim_offsets"], false);
  EXPECT_EQ(both[1], without["post_processor"]);
}

}  // namespace
}  // namespace espalier::convert::hf_bert_test
