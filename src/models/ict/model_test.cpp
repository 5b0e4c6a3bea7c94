// A biencoder beside a plain one of ATen in double, written from the formulas: the loss, accuracies, and the gradient
// of every parameter.
#include "models/ict/model.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "models/bert/batch.h"
#include "models/bert/plain_bert_test.h"
#include "models/ict/batch.h"
#include "pipeline/runner.h"

namespace espalier::models {
namespace ict_model_test {

constexpr int64_t kSequence = 11, kVocabulary = 29;

families::BiencoderConfig biencoder(bool shared, int64_t projection_dim) {
  families::BiencoderConfig config{.bert = {}, .projection_dim = projection_dim, .shared = shared};
  config.bert.num_layers = 2;
  config.bert.hidden_size = 24;
  config.bert.ffn_hidden_size = 40;
  config.bert.num_attention_heads = 3;
  config.bert.kv_channels = 8;
  config.bert.max_position_embeddings = 17;
  config.bert.vocab_size = kVocabulary;
  config.bert.padded_vocab_size = 33;
  config.bert.hidden_dropout = config.bert.attention_dropout = 0;
  return config;
}

// Texts of 3 to 11 tokens; what follows them must not be seen.
struct Texts {
  std::vector<int64_t> add(int64_t number) {
    std::vector<int64_t> ids;
    for (int64_t at = 0; at < kSequence; ++at) ids.push_back((at * 7 + number * 5 + number * at) % kVocabulary);
    return ids;
  }
  Texts(int64_t num_queries, int64_t contexts_each) {
    for (int64_t number = 0; number < num_queries * (1 + contexts_each); ++number) ids.push_back(add(number));
    auto next = ids.begin();
    const auto text = [&] {
      const std::vector<int64_t>& ids_of_text = *next++;
      return EncodedText{ids_of_text, 3 + (next - ids.begin()) * 5 % 9};
    };
    for (int64_t query = 0; query < num_queries; ++query) {
      RetrievalRow row{.sample_number = query, .query = text(), .contexts = {}};
      for (int64_t context = 0; context < contexts_each; ++context) row.contexts.push_back(text());
      rows.push_back(row);
    }
  }
  std::vector<std::vector<int64_t>> ids;
  std::vector<RetrievalRow> rows;
};

struct Whole {
  explicit Whole(const families::BiencoderConfig& config, const families::BiencoderSettings& settings)
      : params(families::biencoder_params(config), {}, at::kFloat, true),
        model(nn::LayerBuilder{params, dist::single_process()}, settings, config, {}) {
    at::Generator generator = at::detail::createCPUGenerator(3);
    for (tensor::Param& param : params.params()) {
      const at::Tensor noise = at::randn(param.value.sizes(), generator, at::kFloat) * 0.2;
      param.value.copy_(param.spec->init.kind == spec::Init::Kind::kConstant ? noise + param.spec->init.value : noise);
      values[param.spec->name] = param.value.to(at::kDouble).clone().requires_grad_(true);
    }
  }
  tensor::ParamSet params;
  BiencoderModel model;
  std::map<std::string, at::Tensor> values;  // of the plain one
  pipeline::Runner runner{{&model}, dist::single_process().pipeline, params.grad_queue()};
};

at::Tensor ids_of(const EncodedText& text) {
  return at::tensor(std::vector<int64_t>(text.ids.begin(), text.ids.end()), at::kLong);
}

at::Tensor plain_vector(const Whole& whole, const families::BertConfig& tower, const EncodedText& text) {
  const PlainBertEncoder encoder(tower, whole.values);
  const at::Tensor ids = ids_of(text).narrow(0, 0, text.used).unsqueeze(0);
  const at::Tensor first = encoder.hidden(ids, at::zeros_like(ids), at::ones_like(ids)).select(1, 0);
  const std::string projection = tower.tower.prefix + "projection_enc";
  return whole.values.contains(projection + ".weight") ? encoder.linear(first, projection) : first;
}

struct Case {
  bool shared;
  int64_t projection_dim, contexts_each;
  bool scaling;
};

void expect_loss_and_gradients(const Case& one) {
  const families::BiencoderConfig config = biencoder(one.shared, one.projection_dim);
  const families::BiencoderSettings settings{.score_scaling = one.scaling, .topk_accuracies = {1, 2, 100}};
  Whole whole(config, settings);
  const Texts texts(5, one.contexts_each);
  const tensor::Batch batch = make_retrieval_batch(texts.rows);
  const auto totals = whole.runner
                          .train({{plan::Action::Kind::kForward, 0}, {plan::Action::Kind::kBackward, 0}}, {batch},
                                 [](const pipeline::LossTerm&) { return 0.2; })
                          .totals();

  // Each query's own context, then all others.
  std::vector<at::Tensor> queries, contexts, others;
  for (const RetrievalRow& row : texts.rows) {
    queries.push_back(plain_vector(whole, config.query_tower(), row.query));
    contexts.push_back(plain_vector(whole, config.context_tower(), row.contexts[0]));
    for (size_t at = 1; at < row.contexts.size(); ++at)
      others.push_back(plain_vector(whole, config.context_tower(), row.contexts[at]));
  }
  contexts.insert(contexts.end(), others.begin(), others.end());
  double loss = 0, first = 0, among_two = 0;
  at::Tensor sum = at::zeros({}, at::kDouble);
  for (size_t query = 0; query < queries.size(); ++query) {
    std::vector<at::Tensor> scores;
    for (const at::Tensor& context : contexts)
      scores.push_back((queries[query] * context).sum() * (one.scaling ? 1 / std::sqrt(24.0) : 1.0));
    const at::Tensor all = at::stack(scores);
    sum = sum + all.exp().sum().log() - scores[query];
    const int64_t before = (all > scores[query]).sum().item<int64_t>();
    first += before < 1;
    among_two += before < 2;
  }
  (sum / 5).backward();
  loss = sum.item<double>() / 5;

  ASSERT_EQ(totals.size(), 4u);
  EXPECT_EQ(totals[0].name, "loss");
  EXPECT_FALSE(totals[0].is_measure);
  EXPECT_NEAR(totals[0].sum / totals[0].count, loss, 1e-5 * std::max(1.0, loss));
  const double accuracies[] = {first * 20, among_two * 20, 100};
  const char* const names[] = {"top1_acc", "top2_acc", "top100_acc"};
  for (size_t at = 0; at < 3; ++at) {
    EXPECT_EQ(totals[at + 1].name, names[at]);
    EXPECT_TRUE(totals[at + 1].is_measure);
    EXPECT_DOUBLE_EQ(totals[at + 1].sum / totals[at + 1].count, accuracies[at]);
  }
  for (tensor::Param& param : whole.params.params()) {
    const at::Tensor& gradient = whole.values.at(param.spec->name).grad();
    ASSERT_TRUE(gradient.defined()) << param.spec->name;
    const double largest = gradient.abs().max().item<double>();
    EXPECT_LE((param.grad.to(at::kDouble) - gradient).abs().max().item<double>(), 1e-5 * std::max(1.0, largest))
        << param.spec->name;
  }
}

TEST(BiencoderModel, LossAccuraciesAndEveryGradientAreThoseOfPlainFormulas) {
  expect_loss_and_gradients({.shared = false, .projection_dim = 0, .contexts_each = 1, .scaling = true});
}

TEST(BiencoderModel, SoOfOneTowerForBothAndWithProjections) {
  expect_loss_and_gradients({.shared = true, .projection_dim = 0, .contexts_each = 1, .scaling = false});
  expect_loss_and_gradients({.shared = true, .projection_dim = 7, .contexts_each = 1, .scaling = true});
  expect_loss_and_gradients({.shared = false, .projection_dim = 33, .contexts_each = 1, .scaling = false});
}

TEST(BiencoderModel, ContextsThatNoQueryAsksForCompeteToo) {
  expect_loss_and_gradients({.shared = false, .projection_dim = 0, .contexts_each = 3, .scaling = true});
  expect_loss_and_gradients({.shared = true, .projection_dim = 7, .contexts_each = 2, .scaling = false});
}

TEST(BiencoderModel, AQueryThatFillsUpTheBatchCountsNothing) {
  const families::BiencoderConfig config = biencoder(false, 0);
  const families::BiencoderSettings settings{.topk_accuracies = {1}};
  const Texts texts(5, 1);
  std::vector<RetrievalRow> rows = texts.rows;
  rows[4].weight = 0;
  Whole whole(config, settings);
  const auto counted = whole.runner.evaluate({{plan::Action::Kind::kForward, 0}}, {make_retrieval_batch(rows)});
  EXPECT_EQ(counted[0].count, 4);
  EXPECT_EQ(counted[1].count, 4);
  EXPECT_EQ(make_retrieval_batch(rows).targets.at(0).second, 4);
}

// One text alone has the vector that it has in a padded batch.
TEST(BiencoderModel, EmbedsWhatItTrains) {
  for (const bool shared : {false, true}) {
    const families::BiencoderConfig config = biencoder(shared, 7);
    Whole whole(config, {});
    const Texts texts(3, 1);
    EXPECT_EQ(whole.model.embedding_size(), 7);
    for (const RetrievalRow& row : texts.rows)
      for (const auto side : {TextEncoder::Side::kQuery, TextEncoder::Side::kContext}) {
        const bool is_query = side == TextEncoder::Side::kQuery;
        const EncodedText& text = is_query ? row.query : row.contexts[0];
        const at::Tensor found = whole.model.embed(ids_of(text).narrow(0, 0, text.used), side);
        const at::Tensor wanted = plain_vector(whole, is_query ? config.query_tower() : config.context_tower(), text);
        EXPECT_LE((found - wanted.squeeze(0)).abs().max().item<double>(), 1e-5);
      }
  }
}

TEST(BiencoderModel, VisitsExactlyTheParametersOfItsSpecListInOrder) {
  for (const bool shared : {false, true}) {
    const families::BiencoderConfig config = biencoder(shared, 7);
    Whole whole(config, {});
    std::vector<std::string> names, expected;
    tensor::ParamVisitor visitor([&](const std::string& name, tensor::Param& param) {
      EXPECT_EQ(name, param.spec->name);
      names.push_back(name);
    });
    whole.model.visit(visitor);
    for (const spec::ParamSpec& spec : families::biencoder_params(config)) expected.push_back(spec.name);
    EXPECT_EQ(names, expected);
  }
}

TEST(RetrievalBatch, HasQueriesFirstThenTheirContextsThenOthers) {
  const Texts texts(3, 2);
  const tensor::Batch batch = make_retrieval_batch(texts.rows);
  EXPECT_EQ(batch.sample_numbers, (std::vector<int64_t>{0, 3, 6, 1, 4, 7, 2, 5, 8}));
  ASSERT_EQ(batch.ids.size(0), 9);
  for (int64_t row = 0; row < 9; ++row)
    EXPECT_EQ(batch.ids[row][1].item<int64_t>(),
              texts.ids[static_cast<size_t>(batch.sample_numbers[static_cast<size_t>(row)])][1]);
  EXPECT_EQ(batch.extra.at(kLastKeys)[0][0].item<int32_t>(), texts.rows[0].query.used - 1);
  EXPECT_EQ(batch.extra.at(kLastKeys)[4][kSequence - 1].item<int32_t>(),
            texts.rows[1].contexts[0].used == kSequence ? kSequence - 1 : -1);
}

}  // namespace ict_model_test
}  // namespace espalier::models
