// BERT against a plain one of ATen in double, written from the formulas: losses, and the gradient of every parameter.
#include "models/bert/model.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>

#include "models/bert/batch.h"
#include "models/bert/plain_bert_test.h"
#include "pipeline/runner.h"

namespace espalier::models {
namespace bert_model_test {

constexpr int64_t kSequence = 13, kVocabulary = 29, kPad = 5;

families::BertConfig awkward_config() {
  families::BertConfig config;
  config.num_layers = 3;
  config.hidden_size = 24;
  config.ffn_hidden_size = 40;
  config.num_attention_heads = 3;
  config.kv_channels = 8;
  config.max_position_embeddings = 17;
  config.vocab_size = kVocabulary;
  config.padded_vocab_size = 33;
  config.hidden_dropout = config.attention_dropout = 0;
  return config;
}

// A sample of `used` tokens, padded with the id `pad` in its types too, as upstream does.
SampleRow sample_of(int64_t number, int64_t used, int64_t swapped, int64_t pad = kPad) {
  std::vector<int64_t> text, types, labels, loss_mask, padding_mask;
  for (int64_t at = 0; at < kSequence; ++at) {
    const bool is_used = at < used, is_target = is_used && (at + number) % 4 == 1;
    text.push_back(is_used ? (at * 7 + number * 3) % kVocabulary : pad);
    types.push_back(is_used ? at * 2 / used : pad);
    labels.push_back(is_target ? (at * 11 + number) % kVocabulary : -1);
    loss_mask.push_back(is_target);
    padding_mask.push_back(is_used);
  }
  return {number, {{text, types, labels, {swapped}, loss_mask, padding_mask, {0}}, 0}};
}

std::vector<SampleRow> awkward_samples() { return {sample_of(0, 13, 1), sample_of(1, 6, 0), sample_of(2, 2, 1)}; }

// The same from ATen, [b, s, h], all in double.
class PlainBert {
 public:
  PlainBert(const families::BertConfig& config, const std::map<std::string, at::Tensor>& values)
      : config_(config), encoder_(config, values_) {
    for (const auto& [name, value] : values) values_[name] = value.to(at::kDouble).clone().requires_grad_(true);
  }

  struct Losses {
    at::Tensor lm, sop;  // means
  };
  Losses losses(const std::vector<SampleRow>& rows) const {
    const at::Tensor padding = stacked(rows, 5), mask = stacked(rows, 4).to(at::kDouble);
    const at::Tensor x = encoder_.hidden(stacked(rows, 0), stacked(rows, 1) * padding, padding);
    const auto& e = encoder_;
    const at::Tensor transformed =
        e.norm(PlainBertEncoder::gelu(e.linear(x, "lm_head.dense"), config_.head_activation), "lm_head.layernorm");
    const at::Tensor logits = at::matmul(transformed, e.p("word_embeddings.weight").t()) + e.p("lm_head.bias");
    const at::Tensor token_losses =
        -at::log_softmax(logits, 2).gather(2, stacked(rows, 2).clamp_min(0).unsqueeze(2)).squeeze(2);
    Losses losses{(token_losses * mask).sum() / mask.sum(), {}};
    if (!config_.binary_head) return losses;
    const at::Tensor order =
        at::log_softmax(e.linear(e.linear(x.select(1, 0), "pooler.dense").tanh(), "binary_head"), 1);
    losses.sop = -order.gather(1, stacked(rows, 3)).mean();
    return losses;
  }
  const std::map<std::string, at::Tensor>& values() const { return values_; }

 private:
  static at::Tensor stacked(const std::vector<SampleRow>& rows, size_t field) {
    std::vector<at::Tensor> all;
    for (const SampleRow& row : rows) all.push_back(at::tensor(row.sample.arrays[field], at::kLong));
    return at::stack(all);
  }

  families::BertConfig config_;
  std::map<std::string, at::Tensor> values_;
  PlainBertEncoder encoder_;
};

struct WholeBert {
  explicit WholeBert(const families::BertConfig& config)
      : params(families::bert_params(config), {}, at::kFloat, true),
        model(nn::LayerBuilder{params, dist::single_process()}, config, {0, config.num_layers + 2}, {}) {
    // Also what begins with 0 or 1, so that no gradient is left out.
    at::Generator generator = at::detail::createCPUGenerator(3);
    for (tensor::Param& param : params.params()) {
      const at::Tensor noise = at::randn(param.value.sizes(), generator, at::kFloat) * 0.2;
      param.value.copy_(param.spec->init.kind == spec::Init::Kind::kConstant ? noise + param.spec->init.value : noise);
      values[param.spec->name] = param.value;
    }
  }
  tensor::ParamSet params;
  BertModel model;
  std::map<std::string, at::Tensor> values;
  pipeline::Runner runner{{&model}, dist::single_process().pipeline, params.grad_queue()};
};

void expect_losses_and_gradients(const families::BertConfig& config) {
  WholeBert bert(config);
  const tensor::Batch batch = make_bert_batch(awkward_samples(), config.binary_head);
  const std::map<std::string, double> targets(batch.targets.begin(), batch.targets.end());
  const auto totals = bert.runner
                          .train({{plan::Action::Kind::kForward, 0}, {plan::Action::Kind::kBackward, 0}}, {batch},
                                 [&](const pipeline::LossTerm& term) {
                                   EXPECT_EQ(term.count.item<double>(), targets.at(term.name));
                                   return 1 / targets.at(term.name);
                                 })
                          .totals();
  const PlainBert plain(config, bert.values);
  const PlainBert::Losses wanted = plain.losses(awkward_samples());
  ASSERT_EQ(totals.size(), config.binary_head ? 2u : 1u);
  EXPECT_EQ(totals[0].name, "lm loss");
  EXPECT_NEAR(totals[0].sum / totals[0].count, wanted.lm.item<double>(), 1e-5);
  if (config.binary_head) {
    EXPECT_EQ(totals[1].name, "sop loss");
    EXPECT_NEAR(totals[1].sum / totals[1].count, wanted.sop.item<double>(), 1e-5);
  }
  (config.binary_head ? wanted.lm + wanted.sop : wanted.lm).backward();
  for (tensor::Param& param : bert.params.params()) {
    const at::Tensor& gradient = plain.values().at(param.spec->name).grad();
    const double largest = gradient.abs().max().item<double>();
    // Softmax is deaf to a bias of all keys, which alone has no gradient.
    EXPECT_GT(largest, 0) << param.spec->name;
    EXPECT_LE((param.grad.to(at::kDouble) - gradient).abs().max().item<double>(), 1e-5 * std::max(1.0, largest))
        << param.spec->name;
  }
}

TEST(BertModel, LossesAndEveryGradientAreThoseOfPlainFormulas) { expect_losses_and_gradients(awkward_config()); }

TEST(BertModel, SoAreThoseWithoutBinaryHead) {
  families::BertConfig config = awkward_config();
  config.binary_head = false;
  for (const int64_t types : {0, 3}) {
    config.num_tokentypes = types;
    expect_losses_and_gradients(config);
  }
}

TEST(BertModel, SoAreThoseWithTheOtherChoices) {
  families::BertConfig config = awkward_config();
  config.residual_from_layernorm = true;
  config.activation = spec::Activation::kGeluErf;
  config.head_activation = spec::Activation::kGeluTanh;
  config.layernorm_epsilon = 1e-3;
  expect_losses_and_gradients(config);
}

// What is in the padding changes nothing to the last bit.
TEST(BertModel, PaddingIsNotSeen) {
  const auto losses_with_pad = [](int64_t pad) {
    WholeBert bert(awkward_config());
    const tensor::Batch batch = make_bert_batch({sample_of(1, 6, 0, pad), sample_of(2, 2, 1, pad)}, true);
    const auto totals = bert.runner.evaluate({{plan::Action::Kind::kForward, 0}}, {batch});
    return std::vector<double>{totals[0].sum, totals[1].sum};
  };
  EXPECT_EQ(losses_with_pad(0), losses_with_pad(28));
}

TEST(BertModel, VisitsExactlyTheParametersOfItsSpecListInOrder) {
  for (const bool binary_head : {false, true}) {
    families::BertConfig config = awkward_config();
    config.binary_head = binary_head, config.num_tokentypes = binary_head ? 2 : 0;
    WholeBert bert(config);
    std::vector<std::string> names, expected;
    tensor::ParamVisitor visitor([&](const std::string& name, tensor::Param& param) {
      EXPECT_EQ(name, param.spec->name);
      names.push_back(name);
    });
    bert.model.visit(visitor);
    for (const spec::ParamSpec& spec : families::bert_params(config)) expected.push_back(spec.name);
    EXPECT_EQ(names, expected);
  }
}

TEST(BertBatch, NamesWhatItsLossesAreMeansOver) {
  const tensor::Batch batch = make_bert_batch(awkward_samples(), true);
  using Targets = std::vector<std::pair<std::string, double>>;
  EXPECT_EQ(batch.targets, (Targets{{"lm loss", 5}, {"sop loss", 3}}));
  EXPECT_EQ(make_bert_batch(awkward_samples(), false).targets, (Targets{{"lm loss", 5}}));
  EXPECT_EQ(batch.labels.min().item<int64_t>(), 0);
  EXPECT_LE(batch.extra.at(kTokenTypes).max().item<int64_t>(), 1) << "padding has no type";
  EXPECT_EQ(batch.extra.at(kLastKeys)[1][5].item<int32_t>(), 5);
  EXPECT_EQ(batch.extra.at(kLastKeys)[1][6].item<int32_t>(), -1);
}

}  // namespace bert_model_test
}  // namespace espalier::models
