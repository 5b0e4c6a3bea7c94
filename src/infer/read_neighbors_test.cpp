// Generation with neighbours beside the pass of training over the whole text, once for every token.
#include "infer/read_neighbors.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/format.h"
#include "models/retro/batch.h"
#include "models/retro/model.h"

namespace espalier::infer {
namespace read_neighbors_test {

constexpr int64_t kChunk = 4, kNeighbors = 2, kRetrieved = 2 * kChunk, kWords = 29, kEnd = 28, kLongest = 24;

families::RetroConfig tiny_retro(families::PositionEmbedding positions) {
  families::RetroConfig config;
  config.gpt.num_layers = 9;
  config.gpt.hidden_size = 24;
  config.gpt.ffn_hidden_size = 40;
  config.gpt.num_attention_heads = 3;
  config.gpt.kv_channels = 8;
  config.gpt.position_embedding = positions;
  config.gpt.max_position_embeddings = kLongest;
  config.gpt.vocab_size = kWords;
  config.gpt.padded_vocab_size = 33;
  config.retrieves = true;
  config.chunk_length = kChunk;
  config.num_neighbors = kNeighbors;
  config.num_retrieved_chunks = kRetrieved / kChunk;
  return config;
}

// Two, one or no neighbours, whose tokens follow from the chunk's.
models::ChunkNeighbors neighbors_of_chunk(std::span<const int32_t> chunk) {
  models::ChunkNeighbors made{std::vector<int64_t>(kNeighbors * kRetrieved, kEnd), 0, {}};
  int64_t sum = 0;
  for (const int32_t id : chunk) sum = (sum * 5 + id) % 1009;
  for (made.count = 0; made.count < sum % 3; ++made.count) {
    made.ids.push_back(sum + made.count);
    for (int64_t at = 0; at < kRetrieved; ++at)
      made.tokens[static_cast<size_t>(made.count * kRetrieved + at)] = (sum * (made.count + 3) + at * 11) % kWords;
  }
  return made;
}

struct WholeRetro {
  explicit WholeRetro(const families::RetroConfig& config)
      : params(families::retro_params(config), {}, at::kFloat, false),
        model(nn::LayerBuilder{params, dist::single_process()}, config, {}) {
    at::Generator generator = at::detail::createCPUGenerator(7);
    for (tensor::Param& param : params.params()) {
      const at::Tensor noise = at::randn(param.value.sizes(), generator, at::kFloat) * 0.2;
      param.value.copy_(param.spec->init.kind == spec::Init::Kind::kConstant ? noise + param.spec->init.value : noise);
    }
  }
  // Log-probabilities of the id after `ids`; what fills up the last chunk comes after it.
  at::Tensor next_by_training(const std::vector<int32_t>& ids) const {
    const auto size = static_cast<int64_t>(ids.size()), chunks = (size + kChunk - 1) / kChunk;
    models::SampleRow row{0, {{std::vector<int64_t>(ids.begin(), ids.end()), {}, {}}, 0}};
    row.sample.arrays[0].resize(static_cast<size_t>(chunks * kChunk + 1), 1);
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      models::ChunkNeighbors made{std::vector<int64_t>(kNeighbors * kRetrieved, kEnd), 0, {}};
      if ((chunk + 1) * kChunk <= size) made = neighbors_of_chunk({ids.data() + chunk * kChunk, kChunk});
      row.sample.arrays[1].insert(row.sample.arrays[1].end(), made.tokens.begin(), made.tokens.end());
      row.sample.arrays[2].push_back(made.count);
    }
    const at::Tensor logits = model.batch_logits(models::make_retro_batch({row}, {}, kNeighbors));
    return at::log_softmax(logits[0][size - 1].narrow(0, 0, kWords), 0);
  }

  tensor::ParamSet params;
  models::RetroModel model;
};

TEST(ReadNeighbors, WritesWhatTheWholePassOfTrainingSaysTokenByToken) {
  for (const auto positions : {families::PositionEmbedding::kLearned, families::PositionEmbedding::kRotary}) {
    const WholeRetro retro(tiny_retro(positions));
    std::vector<size_t> asked;  // chunks of each question
    const FindNeighbors find = [&](std::span<const int32_t> ids) {
      asked.push_back(ids.size() / kChunk);
      std::vector<models::ChunkNeighbors> all;
      for (size_t chunk = 0; chunk < ids.size() / kChunk; ++chunk)
        all.push_back(neighbors_of_chunk(ids.subspan(chunk * kChunk, kChunk)));
      return all;
    };
    for (const int64_t size : {1, 3, 4, 13}) {
      SCOPED_TRACE(concat("a prompt of ", size));
      std::vector<int32_t> text;
      for (int64_t at = 0; at < size; ++at) text.push_back(static_cast<int32_t>((at * 7 + size) % kWords));
      asked.clear();
      const Generated made = read_and_continue(
          retro.model, at::kFloat, text,
          {.tokens_to_generate = 11, .sampling = {.top_k = 1}, .stop_ids = {}, .begin_id = {}, .find_neighbors = find},
          0);
      ASSERT_EQ(made.generated_ids.size(), 11u);
      for (size_t at = 0; at < 11; ++at) {
        const at::Tensor next = retro.next_by_training(text);
        EXPECT_EQ(made.generated_ids[at], next.argmax().item<int64_t>()) << at;
        EXPECT_NEAR(made.logprobs[at], next[made.generated_ids[at]].item<double>(), 1e-5) << at;
        text.push_back(made.generated_ids[at]);
      }
      text.pop_back();  // the model has not read it
      ASSERT_EQ(made.neighbors.size(), text.size() / kChunk);
      for (size_t chunk = 0; chunk < made.neighbors.size(); ++chunk)
        EXPECT_EQ(made.neighbors[chunk], neighbors_of_chunk({text.data() + chunk * kChunk, kChunk}).ids);
      // The chunks of the prompt are looked up together.
      EXPECT_EQ(asked.size(), made.neighbors.size() - std::max<size_t>(1, static_cast<size_t>(size) / kChunk) + 1);
    }
  }
}

TEST(ReadNeighbors, EndsWithTheTokenThatStops) {
  const WholeRetro retro(tiny_retro(families::PositionEmbedding::kLearned));
  const FindNeighbors find = [](std::span<const int32_t> ids) {
    return std::vector<models::ChunkNeighbors>(ids.size() / kChunk, neighbors_of_chunk(ids.first(kChunk)));
  };
  GenerateConfig config{.tokens_to_generate = 9, .sampling = {.top_k = 1}, .stop_ids = {}, .begin_id = {}};
  config.find_neighbors = find;
  const Generated whole = read_and_continue(retro.model, at::kFloat, {3, 1, 4}, config, 0);
  config.stop_ids = {whole.generated_ids[4]};
  const Generated stopped = read_and_continue(retro.model, at::kFloat, {3, 1, 4}, config, 0);
  const auto first = std::find(whole.generated_ids.begin(), whole.generated_ids.end(), config.stop_ids[0]);
  EXPECT_EQ(stopped.generated_ids, std::vector<int32_t>(whole.generated_ids.begin(), first + 1));
}

TEST(ReadNeighbors, ScoresATextAsTheWholePassOfTrainingDoes) {
  const WholeRetro retro(tiny_retro(families::PositionEmbedding::kLearned));
  for (const auto& [size, num_predicted] :
       {std::pair<int64_t, int64_t>{2, 1}, {4, 3}, {5, 4}, {9, 2}, {20, 19}, {23, 7}}) {
    SCOPED_TRACE(concat(num_predicted, " of ", size));
    std::vector<int32_t> text;
    for (int64_t at = 0; at < size; ++at) text.push_back(static_cast<int32_t>((at * at * 5 + size) % kWords));
    std::vector<models::ChunkNeighbors> neighbors;
    for (int64_t chunk = 0; chunk < (size - 1) / kChunk; ++chunk)
      neighbors.push_back(neighbors_of_chunk({text.data() + chunk * kChunk, kChunk}));
    double sum = 0;
    bool is_greedy = true;
    for (int64_t at = size - num_predicted; at < size; ++at) {
      const at::Tensor next = retro.next_by_training({text.begin(), text.begin() + at});
      sum += next[text[static_cast<size_t>(at)]].item<double>();
      is_greedy = is_greedy && next.argmax().item<int64_t>() == text[static_cast<size_t>(at)];
    }
    const LogLikelihood found = score_with_neighbors(retro.model, at::kFloat, text, num_predicted, neighbors);
    EXPECT_NEAR(found.sum, sum, 1e-5 * static_cast<double>(num_predicted));
    EXPECT_EQ(found.is_greedy, is_greedy);
    // The likeliest id in place of the last one.
    const at::Tensor next = retro.next_by_training({text.begin(), text.end() - 1});
    text.back() = static_cast<int32_t>(next.argmax().item<int64_t>());
    EXPECT_TRUE(score_with_neighbors(retro.model, at::kFloat, text, 1, neighbors).is_greedy);
  }
}

}  // namespace read_neighbors_test
}  // namespace espalier::infer
