// Documents that are packed into one sequence stay apart under --reset-attention-mask: whatever the first one says, the
// second one's loss and all gradients that come from it keep their bits, in every layout that cuts a sequence.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "base/format.h"
#include "dist/local_ranks.h"
#include "models/gpt/model.h"
#include "tests/parallel/small_models.h"

namespace espalier::test {
namespace {

using families::GptConfig;
using families::PositionEmbedding;

constexpr int64_t kTokens = 64, kVocabularySize = 61, kSecondBegins = 23;

struct DocumentCase {
  const char* name;
  PositionEmbedding positions;
  int64_t window = 0;
  at::ScalarType type = at::kFloat;
};
void PrintTo(const DocumentCase& value, std::ostream* out) { *out << value.name; }

GptConfig documents_model(const DocumentCase& one) {
  GptConfig config;
  config.num_layers = 2;
  config.hidden_size = 48;
  config.ffn_hidden_size = 40;
  config.num_attention_heads = 8;
  config.num_query_groups = 4;
  config.kv_channels = 6;
  config.max_position_embeddings = kTokens;
  config.vocab_size = config.padded_vocab_size = kVocabularySize;
  config.position_embedding = one.positions;
  config.window_size = one.window;
  config.init_method_std = 0.2;
  return config;
}

// Two documents, of which only the second one's labels count.
tensor::Batch two_documents(unsigned first_seed, bool apart) {
  std::mt19937 first(first_seed), second(7);
  std::vector<int64_t> text;
  for (int64_t at = 0; at <= kTokens; ++at) text.push_back((at < kSecondBegins ? first() : second()) % kVocabularySize);
  const at::Tensor ids = at::tensor(text, at::kLong).view({1, -1});
  tensor::Batch batch;
  batch.sample_numbers = {0};
  batch.ids = ids.narrow(1, 0, kTokens).contiguous();
  batch.labels = ids.narrow(1, 1, kTokens).contiguous();
  batch.loss_mask = at::ones({1, kTokens});
  batch.loss_mask.narrow(1, 0, kSecondBegins).zero_();
  batch.positions = at::arange(kTokens, at::kLong).view({1, -1}).clone();
  batch.positions.narrow(1, kSecondBegins, kTokens - kSecondBegins).sub_(kSecondBegins);
  batch.document_starts = at::zeros({1, kTokens}, at::kInt);
  batch.document_starts.narrow(1, kSecondBegins, kTokens - kSecondBegins).fill_(kSecondBegins);
  if (!apart) batch.document_starts.reset();
  return batch;
}

// The loss, then the gradient of every parameter that this rank holds.
std::vector<at::Tensor> loss_and_gradients(const DocumentCase& one, const dist::Grid& grid, bool sequence_parallel,
                                           const tensor::Batch& batch) {
  const GptConfig config = documents_model(one);
  const std::vector<spec::ParamSpec> specs = families::gpt_params(config);
  tensor::ParamSet params(specs, grid.tensor_shard(), one.type, true);
  params.initialize(5, [](tensor::Param& param, const at::Tensor& fp32) { param.value.copy_(fp32); });
  models::GptModel model({params, grid, sequence_parallel}, config, {.recompute = {}, .seed = 3});
  const pipeline::StageOutput output = model.forward({.batch = &batch, .tensors = {}, .training = true});
  const at::Tensor loss = output.loss.at(0).sum;
  loss.backward();
  std::vector<at::Tensor> found = {loss.detach().clone()};
  for (const tensor::Param& param : params.params()) found.push_back(param.grad.clone());
  return found;
}

class Documents : public ::testing::TestWithParam<DocumentCase> {};

TEST_P(Documents, KeepTheBitsOfTheSecondWhateverTheFirstSays) {
  const auto differences = [&](const dist::Grid& grid, bool sequence_parallel, bool apart) {
    const auto run = [&](unsigned seed) {
      return loss_and_gradients(GetParam(), grid, sequence_parallel, two_documents(seed, apart));
    };
    const std::vector<at::Tensor> one = run(1), other = run(2);
    std::string different;
    for (size_t at = 0; at < one.size(); ++at)
      if (!at::equal(one[at], other[at])) different += concat(" ", at);
    ESPALIER_CHECK(one[0].abs().item<double>() > 1, "the second document has a loss");
    return different;
  };
  struct Cut {
    spec::GridShape shape;
    bool sequence_parallel = false;
  };
  for (const Cut& cut : {Cut{}, Cut{{.tensor = 2}, true}, Cut{{.context = 2}}, Cut{{.context = 4}},
                         Cut{{.tensor = 2, .context = 2}, true}}) {
    SCOPED_TRACE(spec::to_string(cut.shape));
    for (const bool apart : {true, false}) {
      const auto texts = dist::run_ranks(
          cut.shape, [&](const dist::Grid& grid) { return differences(grid, cut.sequence_parallel, apart); });
      std::string all;
      for (const std::string& text : texts) all += text;
      EXPECT_EQ(all.empty(), apart) << "loss (0) or gradients that differ:" << all;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, Documents,
                         ::testing::Values(DocumentCase{"learned", PositionEmbedding::kLearned},
                                           DocumentCase{"alibi", PositionEmbedding::kAlibi},
                                           DocumentCase{"rotary", PositionEmbedding::kRotary},
                                           DocumentCase{"rotary_in_windows", PositionEmbedding::kRotary, 9},
                                           DocumentCase{"alibi_in_bf16", PositionEmbedding::kAlibi, 0, at::kBFloat16}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace espalier::test
