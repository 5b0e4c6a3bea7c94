// What is planned for a T5, against closed forms and plain walks: its parameters, FLOPs, stages and messages. The bytes
// that ranks send were counted in runs of these layouts once, and are those of the closed forms here.
#include <gtest/gtest.h>

#include "families/t5/config.h"
#include "plan/flops.h"
#include "plan/messages.h"
#include "plan/run_plan.h"
#include "tests/support/gpt_options.h"

namespace espalier::families {
namespace {

T5Config shape(int64_t encoder_layers, int64_t decoder_layers, int64_t hidden, int64_t heads, int64_t vocabulary) {
  T5Config model;
  model.num_layers = encoder_layers;
  model.decoder_num_layers = decoder_layers;
  model.hidden_size = hidden;
  model.ffn_hidden_size = 4 * hidden;
  model.num_attention_heads = heads;
  model.kv_channels = hidden / heads;
  model.max_position_embeddings = 512;
  model.padded_vocab_size = vocabulary;
  return model;
}

// Megatron's example, pretrain_t5.sh, with the 30,522 words, two more and 100 sentinels, padded: two kinds of layers,
// two norms after them, words, positions, a bias for each word.
TEST(T5Params, CountIsMegatrons) {
  const int64_t h = 768, v = 30720;
  const int64_t encoder_layer = 12 * h * h + 13 * h, decoder_layer = 16 * h * h + 19 * h;
  EXPECT_EQ(t5_model_spec(shape(12, 12, h, 12, v), 512, 128).num_parameters(),
            12 * (encoder_layer + decoder_layer) + 4 * h + (v + 512) * h + v);
  EXPECT_EQ(t5_model_spec(shape(12, 12, h, 12, v), 512, 128).num_parameters(), 222'495'744);
}

TEST(T5Params, CountOfHeadsNarrowerThanTheStreamWithoutBiases) {
  T5Config model = shape(3, 2, 24, 3, 33);
  model.kv_channels = 7;
  model.ffn_hidden_size = 40;
  model.max_position_embeddings = 17;
  model.normalization = spec::Normalization::kRmsNorm;
  model.activation = spec::Activation::kGeglu;
  model.add_bias_linear = model.tie_output = false;
  const int64_t heads = 21, mlp = 3 * 24 * 40;
  const int64_t encoder_layer = 4 * heads * 24 + mlp + 2 * 24, decoder_layer = 8 * heads * 24 + mlp + 3 * 24;
  EXPECT_EQ(t5_model_spec(model, 5, 4).num_parameters(),
            3 * encoder_layer + 2 * decoder_layer + 2 * 24 + (2 * 33 + 17) * 24);
}

TEST(T5Flops, AreTheMultiplyAddsOfAPlainWalk) {
  T5Config model = shape(2, 3, 10, 2, 33);
  model.ffn_hidden_size = 7;
  model.kv_channels = 4;  // projections are 8 wide, not 10
  const int64_t encoder = 6, decoder = 5, heads = 2, channels = 4, projection = 10 * 8, mlp = 2 * 10 * 7;
  int64_t multiply_adds = 0;
  for (int64_t position = 0; position < encoder; ++position) {
    for (int64_t layer = 0; layer < 2; ++layer) {
      multiply_adds += 4 * projection + mlp;
      for (int64_t key = 0; key < encoder; ++key) multiply_adds += 2 * heads * channels;
    }
    for (int64_t layer = 0; layer < 3; ++layer) multiply_adds += 2 * projection;  // keys and values of the decoder
  }
  for (int64_t position = 0; position < decoder; ++position) {
    for (int64_t layer = 0; layer < 3; ++layer) {
      multiply_adds += 4 * projection + 2 * projection + mlp;
      for (int64_t key = 0; key <= position; ++key) multiply_adds += 2 * heads * channels;
      for (int64_t key = 0; key < encoder; ++key) multiply_adds += 2 * heads * channels;
    }
    multiply_adds += 10 * 33;
  }
  EXPECT_EQ(plan::model_flops(t5_model_spec(model, encoder, decoder)), static_cast<double>(3 * 2 * multiply_adds));
}

const std::string kRun =
    "--hidden-size 48 --num-attention-heads 12 --encoder-seq-length 36 --decoder-seq-length 24 "
    "--max-position-embeddings 36 --lr 1e-3 --train-iters 10 --micro-batch-size 2 --pad-vocab-size-to 1280 "
    "--global-batch-size 24 ";

plan::RunShape run_of(const std::string& flags, int64_t num_ranks) {
  return test::resolved_shape(kRun + flags, num_ranks, t5_family());
}

std::vector<int64_t> layers_of_stages(const std::string& flags, int64_t num_ranks) {
  const plan::Partition partition = plan::make_partition(run_of(flags, num_ranks));
  std::vector<int64_t> counts;
  for (int64_t stage = 0; stage < partition.num_stages; ++stage) counts.push_back(partition.layers(stage, 0).count());
  return counts;
}

TEST(T5Partition, EachSideDividesItsOwnLayers) {
  using Counts = std::vector<int64_t>;
  EXPECT_EQ(layers_of_stages("--num-layers 5", 1), Counts{10});
  EXPECT_EQ(layers_of_stages("--num-layers 5 --pipeline-model-parallel-size 4", 4), (Counts{3, 2, 3, 2}));
  EXPECT_EQ(layers_of_stages("--num-layers 5 --pipeline-model-parallel-size 3", 3), (Counts{5, 3, 2}));
  const std::string split = "--pipeline-model-parallel-size 4 --pipeline-model-parallel-split-rank ";
  EXPECT_EQ(layers_of_stages("--num-layers 5 " + split + "1", 4), (Counts{5, 2, 2, 1}));
  EXPECT_EQ(layers_of_stages("--num-layers 4 --decoder-num-layers 7 " + split + "3", 4), (Counts{2, 1, 1, 7}));
}

// The embedding of a stage that begins the decoder is where its layers are.
TEST(T5Partition, StagesShareTheTablesThatTheyUse) {
  using Sets = std::vector<std::vector<int64_t>>;
  const auto shared = [](const std::string& flags, int64_t ranks) {
    return config::shared_stages(test::resolved_run(kRun + "--num-layers 4 " + flags, ranks, t5_family()));
  };
  EXPECT_EQ(shared("", 1), Sets{});
  EXPECT_EQ(shared("--pipeline-model-parallel-size 2", 2), (Sets{{0, 1}}));
  EXPECT_EQ(shared("--pipeline-model-parallel-size 4", 4), (Sets{{0, 2}, {0, 2, 3}}));
  EXPECT_EQ(shared("--pipeline-model-parallel-size 4 --pipeline-model-parallel-split-rank 3", 4), (Sets{{0, 3}}));
  EXPECT_EQ(shared("--pipeline-model-parallel-size 4 --untie-embeddings-and-output-weights", 4), (Sets{{0, 2}}));
}

TEST(T5Partition, PlansNameTheStacksOfTheirLayers) {
  const auto text = [](const std::string& flags, int64_t ranks) {
    return plan::to_text(plan::plan_run(run_of("--num-layers 5 --decoder-num-layers 3 " + flags, ranks)), std::nullopt);
  };
  const std::string stages = text("--pipeline-model-parallel-size 3 --pipeline-model-parallel-split-rank 2", 3);
  for (const char* part : {" embedding, encoder layers 0-2 ", " encoder layers 3-4 ", " decoder layers 0-2, output "})
    EXPECT_NE(stages.find(part), std::string::npos) << part << " in\n" << stages;
  EXPECT_EQ(stages.find("Megatron-DeepSpeed"), std::string::npos) << "it has no such pipeline";
  const std::string one = text("", 1);
  EXPECT_NE(one.find(" embedding, encoder layers 0-4, decoder layers 0-2, output "), std::string::npos) << one;
  const std::string four = text("--pipeline-model-parallel-size 4 --pipeline-model-parallel-split-rank 1", 4);
  EXPECT_NE(four.find(" decoder layer 1 "), std::string::npos) << four;
}

// Bytes of [s, b, h] of encoder and decoder: 2 samples, fp32. Words and positions.
constexpr double kEncoded = 36 * 2 * 48 * 4, kDecoded = 24 * 2 * 48 * 4, kWords = 1280 * 48, kPositions = 36 * 48;

std::vector<plan::StageMessages> messages(const std::string& flags, int64_t num_ranks) {
  const plan::RunShape run = run_of("--num-layers 2 --decoder-num-layers 3 " + flags, num_ranks);
  return plan::plan_messages(run, plan::make_partition(run));
}

// 12 micro-batches. All-reduces on the way forward: both embeddings, two of an encoder layer, three of a decoder layer;
// on the way back as many of the layers' inputs, the encoder's result in each decoder layer, the output's.
TEST(T5Messages, TensorRanksAddUpWhatTheDecoderReadsOfTheEncoder) {
  const double forward = 2 * 2 * kEncoded + 3 * 3 * kDecoded, embeddings = kEncoded + kDecoded;
  const double all = embeddings + 2 * forward + 3 * kEncoded + kDecoded;
  const auto tensor = [](const char* flags) {
    return messages(concat("--tensor-model-parallel-size 4 ", flags), 4)[0].tensor;
  };
  EXPECT_DOUBLE_EQ(tensor(""), 12 * all * 2 * 3 / 4);
  EXPECT_DOUBLE_EQ(tensor("--checkpoint-activations"), 12 * (all + forward) * 2 * 3 / 4);
  // The first layers alone: both of the encoder, one of the decoder.
  EXPECT_DOUBLE_EQ(tensor("--recompute-granularity full --recompute-method block --recompute-num-layers 3"),
                   12 * (all + 4 * kEncoded + 3 * kDecoded) * 2 * 3 / 4);
  // In halves; and the gradients of norms, biases of rows and positions.
  const double stays = 2 * 6 * 48 + 3 * 9 * 48 + 4 * 48 + kPositions;
  EXPECT_DOUBLE_EQ(tensor("--sequence-parallel"), 12 * all * 2 * 3 / 4 + 2 * 4 * stays * 3 / 4);
  EXPECT_DOUBLE_EQ(tensor("--sequence-parallel --checkpoint-activations"),
                   12 * (all + forward + 3 * kEncoded / 2) * 2 * 3 / 4 + 2 * 4 * stays * 3 / 4);
}

TEST(T5Messages, StagesOfTheDecoderPassOnWhatTheEncoderMade) {
  const auto stages = messages("--pipeline-model-parallel-size 4", 4);
  EXPECT_DOUBLE_EQ(stages[0].pipeline, 12 * kEncoded);
  EXPECT_DOUBLE_EQ(stages[1].pipeline, 12 * 2 * kEncoded);
  EXPECT_DOUBLE_EQ(stages[2].pipeline, 12 * (kEncoded + kDecoded + kEncoded));
  EXPECT_DOUBLE_EQ(stages[3].pipeline, 12 * (kEncoded + kDecoded));
  // Words on three stages, positions on two.
  EXPECT_DOUBLE_EQ(stages[0].tied, 2 * 4 * (kWords * 2 / 3 + kPositions / 2));
  EXPECT_EQ(stages[1].tied, 0);
  EXPECT_DOUBLE_EQ(stages[2].tied, stages[0].tied);
  EXPECT_DOUBLE_EQ(stages[3].tied, 2 * 4 * kWords * 2 / 3);
}

// 4 micro-batches of 3 ranks. What is split over tensor ranks passes: weights, biases of columns and of the output.
TEST(T5Messages, GradientsOfWordsLeaveOnceForEachPlaceThatUsesThem) {
  const double passing = 2 * (12 * 48 * 48 + 7 * 48) + 3 * (16 * 48 * 48 + 10 * 48) + 1280;
  const double staying = 2 * 6 * 48 + 3 * 9 * 48 + 4 * 48 + kPositions;
  // From the encoder's embedding of a micro-batch to the output of the next: 9 times.
  EXPECT_DOUBLE_EQ(messages("--zero-stage 2", 3)[0].data,
                   4 * (4 * passing + 9 * kWords + staying + passing + kWords + staying) * 2 / 3);
  // Both embeddings, and an output of its own.
  EXPECT_DOUBLE_EQ(messages("--zero-stage 2 --untie-embeddings-and-output-weights", 3)[0].data,
                   4 * (4 * passing + 8 * kWords + 4 * kWords + staying + passing + 2 * kWords + staying) * 2 / 3);
}

}  // namespace
}  // namespace espalier::families
