// Biencoders in Megatron's checkpoints: whose model it is, where their parameters are, and their arguments.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "config/run_options.h"
#include "convert/bert/formats.h"
#include "convert/gpt/formats.h"
#include "convert/ict/formats.h"
#include "convert/megatron/arguments.h"
#include "convert/model_config.h"
#include "families/ict/config.h"

namespace espalier::convert::megatron_ict_test {
namespace {

using store::TorchValue;

config::RunConfig run_with(const std::vector<std::string>& more, config::RunOptions& options) {
  std::vector<std::string> words = split_blanks(
      "--num-layers 1 --hidden-size 8 --num-attention-heads 4 --seq-length 16 --max-position-embeddings 16 "
      "--micro-batch-size 2 --vocab-file vocab.txt --titles-data-path titles --eval-only true");
  words.insert(words.end(), more.begin(), more.end());
  Problems problems;
  options.table.parse(words, problems);
  config::resolve(options.config, options.table, problems);
  problems.raise();
  options.config.vocabulary = {.size = 20, .padded_size = 32};
  return options.config;
}

// "query_model/projection_enc: weight" of every parameter.
std::vector<std::string> places_of(const config::RunConfig& run) {
  std::vector<std::string> places;
  for (const spec::ParamSpec& param : spec_of(model_of(run)).params)
    for (const ModuleSection& section : ict_formats().megatron.sections)
      if (param.name.starts_with(section.ours))
        places.push_back(join(section.path, "/") + ": " + param.name.substr(section.strip.size()));
  return places;
}

// What state_dict_for_save_checkpoint() of upstream's BiEncoderModel and PretrainedBertModel has for a tower.
std::vector<std::string> upstreams_places(const std::string& tower, bool has_projection) {
  const std::string model = tower + "/language_model/", encoder = model + "encoder: ";
  std::vector<std::string> places;
  for (const char* embedding : {"word", "position", "tokentype"})
    places.push_back(concat(model, "embedding/", embedding, "_embeddings: weight"));
  for (const char* module : {"input_layernorm", "self_attention.query_key_value", "self_attention.dense",
                             "post_attention_layernorm", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"})
    for (const char* part : {"weight", "bias"}) places.push_back(concat(encoder, "layers.0.", module, ".", part));
  for (const char* part : {"weight", "bias"}) {
    places.push_back(concat(encoder, "final_layernorm.", part));
    if (has_projection) places.push_back(concat(tower, "/projection_enc: ", part));
  }
  return places;
}

TEST(MegatronIct, ParametersAreWhereUpstreamHasThem) {
  for (const bool shared : {false, true})
    for (const bool projects : {false, true}) {
      config::RunOptions options(families::ict_family());
      std::vector<std::string> more, wanted;
      if (shared) more.push_back("--biencoder-shared-query-context-model");
      if (projects) more.insert(more.end(), {"--biencoder-projection-dim", "5"});
      for (const char* tower : {"query_model", "context_model", "shared_model"}) {
        if ((tower == std::string("shared_model")) != shared) continue;
        const std::vector<std::string> of_tower = upstreams_places(tower, projects);
        wanted.insert(wanted.end(), of_tower.begin(), of_tower.end());
      }
      std::vector<std::string> found = places_of(run_with(more, options));
      std::sort(found.begin(), found.end());
      std::sort(wanted.begin(), wanted.end());
      EXPECT_EQ(found, wanted);
    }
}

TEST(MegatronIct, NamesTellWhoseModelItIs) {
  const std::set<std::string> ict = {"query_model.language_model.embedding.tokentype_embeddings.weight"},
                              bert = {"language_model.embedding.tokentype_embeddings.weight"};
  EXPECT_TRUE(ict_formats().megatron.recognizes(ict));
  EXPECT_FALSE(ict_formats().megatron.recognizes(bert));
  EXPECT_FALSE(gpt_formats().megatron.recognizes(ict));
  EXPECT_TRUE(bert_formats().megatron.recognizes(bert));
  const auto name_of = [](const char* path) { return ict_formats().megatron.module_name(path); };
  const ModuleName layer = name_of("context_model.language_model.encoder.layers.11.attention.dense.weight");
  EXPECT_EQ(layer.stack, "context_model.layers");
  EXPECT_EQ(layer.layer, 11);
  EXPECT_EQ(layer.name, "self_attention.dense.weight");
  EXPECT_EQ(name_of("shared_model.projection_enc.bias").name, "shared_model.projection_enc.bias");
  EXPECT_EQ(name_of("query_model.language_model.embedding.word_embeddings.weight").name,
            "query_model.word_embeddings.weight");
}

TEST(MegatronIct, ArgumentsOfOurModelsAreReadBackAsTheSame) {
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{},
        {"--biencoder-projection-dim", "5"},
        {"--biencoder-shared-query-context-model", "--no-bias-gelu-fusion"},
        {"--retriever-score-scaling", "--retriever-report-topk-accuracies", "1", "5"}}) {
    config::RunOptions ours(families::ict_family());
    const config::RunConfig run = run_with(more, ours);
    EXPECT_EQ(unsaid_options(run, ours.table), std::vector<std::string>());
    const TorchValue args =
        TorchValue::record("argparse.Namespace", {}, TorchValue::dict(namespace_of(run, ours.table)));
    const config::RunConfig found = megatron_options(args, "file", {}, ict_formats()).config;
    EXPECT_TRUE(is_same_model(model_of(found), model_of(run)));
    const auto &a = found.model.as<families::IctSettings>().biencoder,
               &b = run.model.as<families::IctSettings>().biencoder;
    EXPECT_EQ(a.score_scaling, b.score_scaling);
    EXPECT_EQ(a.topk_accuracies, b.topk_accuracies);
  }
}

}  // namespace
}  // namespace espalier::convert::megatron_ict_test
