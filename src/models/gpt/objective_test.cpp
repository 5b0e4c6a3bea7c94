// Prefix language models and packed pairs against plain formulas with the s x s masks of Megatron-DeepSpeed's rules:
// losses, and the gradient of every parameter.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/format.h"
#include "models/gpt/batch.h"
#include "models/gpt/plain_gpt_test.h"
#include "pipeline/runner.h"

namespace espalier::models {
namespace gpt_objective_test {

using data::Objective;
using families::PositionEmbedding;
using Ids = std::vector<int64_t>;

constexpr int64_t kEod = 9, kPad = 28;
constexpr PositionEmbedding kPositions[] = {PositionEmbedding::kAlibi, PositionEmbedding::kRotary,
                                            PositionEmbedding::kLearned};

// What upstream makes of the rows: matrix, weights of the labels, their divisor.
struct Wanted {
  at::Tensor visible;    // [b, s, s] bool
  at::Tensor loss_mask;  // [b, s] double
  at::Tensor positions;  // [b, s]
  double divisor = 0;
};

Wanted empty_wanted(int64_t b, int64_t s) {
  return {at::ones({b, s, s}, at::kBool).tril(), at::ones({b, s}, at::kDouble),
          at::arange(s, at::kLong).expand({b, s}).clone(), 0};
}

int64_t length_of(const std::vector<SampleRow>& rows) {
  return static_cast<int64_t>(rows[0].sample.arrays[0].size()) - 1;
}

// get_ltor_masks_and_position_ids with prefixes, in its own terms: squares that are opened and rectangles that are
// closed.
Wanted wanted_of_prefixes(const std::vector<SampleRow>& rows, const data::RowRules& rules) {
  const int64_t s = length_of(rows), b = static_cast<int64_t>(rows.size());
  Wanted wanted = empty_wanted(b, s);
  for (int64_t row = 0; row < b; ++row) {
    const SampleRow& sample = rows[static_cast<size_t>(row)];
    const Ids& ids = sample.sample.arrays[0];
    const auto prefixes = data::prefix_masks(ids, sample.sample_number, rules).prefixes;
    at::Tensor visible = wanted.visible[row];
    if (rules.text.reset_attention_mask)
      for (int64_t at = 0; at + 1 < s; ++at)
        if (ids[static_cast<size_t>(at)] == kEod)
          visible.narrow(0, at + 1, s - at - 1).narrow(1, 0, at + 1).fill_(false);
    for (const data::TextPrefix& prefix : prefixes) {
      const int64_t length = prefix.end - prefix.begin;
      visible.narrow(0, prefix.begin, length).narrow(1, prefix.begin, length).fill_(true);
      if (rules.objective.loss_on_targets_only) wanted.loss_mask[row].narrow(0, prefix.begin, length - 1).fill_(0);
    }
  }
  const double length = static_cast<double>(s);
  wanted.divisor = static_cast<double>(b) * length;
  if (rules.objective.loss_on_targets_only) wanted.divisor *= (length + 1) / 2 / length;
  if (!rules.objective.reweight_positions) return wanted;
  const at::Tensor weights = at::arange(s, 0, -1, at::kDouble) / (length + 1) * 2;
  wanted.loss_mask *= weights;
  if (rules.objective.loss_on_targets_only)
    wanted.divisor = static_cast<double>(b) * weights.flip(0).cumsum(0).mean().item<double>();
  return wanted;
}

// get_packed_attention_mask, and the loss mask of finetune_t0.
Wanted wanted_of_pairs(const std::vector<SampleRow>& rows, const Objective& objective) {
  const int64_t s = length_of(rows), b = static_cast<int64_t>(rows.size());
  Wanted wanted = empty_wanted(b, s);
  for (int64_t row = 0; row < b; ++row) {
    const auto array = [&](size_t field) {
      return at::tensor(rows[static_cast<size_t>(row)].sample.arrays[field], at::kLong);
    };
    const at::Tensor labels = array(0).narrow(0, 1, s), is_label_input = array(2).narrow(0, 1, s) != 0;
    const at::Tensor segments = array(1).narrow(0, 0, s), is_input = array(2).narrow(0, 0, s) != 0;
    at::Tensor visible = wanted.visible[row].clone();
    if (objective.whole_input) visible = visible.logical_or(at::logical_and(is_input.view({s, 1}), is_input));
    visible = visible.logical_and(segments.view({s, 1}) == segments);
    wanted.visible[row] = visible.logical_and((segments != 0).view({s, 1}));
    wanted.loss_mask[row] = at::logical_and(is_label_input.logical_not(), labels != kPad).to(at::kDouble);
    int64_t begin = 0;
    for (int64_t at = 0; at < s; ++at) {
      if (at > 0 && segments[at].item<int64_t>() != segments[at - 1].item<int64_t>()) begin = at;
      wanted.positions[row][at] = segments[at].item<int64_t>() == 0 ? 0 : at - begin;
    }
    for (int64_t at = 0, run = 0; objective.norm_target_loss && at < s; at += std::max<int64_t>(1, run)) {
      for (run = 0; at + run < s && wanted.loss_mask[row][at + run].item<double>() != 0; ++run) continue;
      if (run > 0) wanted.loss_mask[row].narrow(0, at, run).fill_(1 / static_cast<double>(run));
    }
  }
  wanted.divisor = wanted.loss_mask.sum().item<double>();
  return wanted;
}

void expect_loss_and_gradients(const families::GptConfig& config, const std::vector<SampleRow>& rows,
                               const data::RowRules& rules, const Wanted& wanted, const std::string& what) {
  SCOPED_TRACE(what);
  plain_gpt::WholeGpt gpt(config);
  pipeline::Runner runner({&gpt.model}, dist::single_process().pipeline, gpt.params.grad_queue());
  const tensor::Batch batch = make_gpt_batch(rows, rules);
  ASSERT_EQ(batch.targets.size(), 1u);
  EXPECT_NEAR(batch.targets[0].second, wanted.divisor, 1e-6 * wanted.divisor);
  const auto totals = runner
                          .train({{plan::Action::Kind::kForward, 0}, {plan::Action::Kind::kBackward, 0}}, {batch},
                                 [&](const pipeline::LossTerm& term) {
                                   EXPECT_NEAR(term.count.item<double>(), wanted.divisor, 1e-6 * wanted.divisor);
                                   return 1 / batch.targets[0].second;
                                 })
                          .totals();
  const plain_gpt::PlainGpt plain(config, gpt.params);
  const at::Tensor losses =
      plain_gpt::PlainGpt::losses(plain.logits(batch.ids, wanted.positions, wanted.visible), batch.labels);
  const at::Tensor loss = (losses * wanted.loss_mask).sum() / wanted.divisor;
  EXPECT_NEAR(totals[0].sum / totals[0].count, loss.item<double>(), 1e-5);
  loss.backward();
  for (const tensor::Param& param : gpt.params.params()) {
    const at::Tensor& gradient = plain.values().at(param.spec->name).grad();
    const double largest = gradient.abs().max().item<double>();
    EXPECT_LE((param.grad.to(at::kDouble) - gradient).abs().max().item<double>(), 1e-5 * std::max(1.0, largest))
        << param.spec->name;
  }
}

std::vector<SampleRow> text_rows(int64_t length) {
  std::vector<SampleRow> rows;
  for (int64_t number = 5; number < 8; ++number) {
    Ids ids;
    for (int64_t at = 0; at <= length; ++at) {
      const bool ends = at % 11 == 6 || at == 17 || at == 18;  // the document at 18 is an EOD alone
      ids.push_back(ends ? kEod : (at * 7 + number * 3) % 8);
    }
    rows.push_back({number, {{ids}, 0}});
  }
  return rows;
}

TEST(GptObjective, PrefixModelsHaveTheLossAndGradientsOfPlainFormulas) {
  for (const PositionEmbedding positions : kPositions)
    for (const int64_t length : {1, 7, 33})
      for (int64_t flags = 0; flags < 8; ++flags) {
        data::RowRules rules;
        rules.objective = {.kind = Objective::Kind::kPrefix,
                           .loss_on_targets_only = (flags & 1) != 0,
                           .reweight_positions = (flags & 2) != 0};
        rules.text = {.eod = static_cast<int32_t>(kEod), .reset_attention_mask = (flags & 4) != 0};
        rules.seed = 1234;
        const auto rows = text_rows(length);
        expect_loss_and_gradients(
            plain_gpt::awkward_gpt(positions), rows, rules, wanted_of_prefixes(rows, rules),
            concat("positions ", static_cast<int>(positions), " length ", length, " flags ", flags));
      }
}

// Rows of pairs of these numbers of input and target tokens, each row padded.
std::vector<SampleRow> pair_rows(int64_t length, const std::vector<std::vector<std::pair<int, int>>>& pairs_of_rows) {
  std::vector<SampleRow> rows;
  for (const auto& pairs : pairs_of_rows) {
    Ids ids, segments, is_input;
    int64_t segment = 0;
    for (const auto& [input, target] : pairs) {
      ++segment;
      for (int at = 0; at < input + target; ++at) {
        ids.push_back(static_cast<int64_t>(ids.size() * 5 + rows.size()) % 27);
        segments.push_back(segment);
        is_input.push_back(at < input);
      }
    }
    for (; static_cast<int64_t>(ids.size()) <= length; segments.push_back(0), is_input.push_back(0))
      ids.push_back(kPad);
    rows.push_back({static_cast<int64_t>(rows.size()), {{ids, segments, is_input}, 0}});
  }
  return rows;
}

TEST(GptObjective, PackedPairsHaveTheLossAndGradientsOfPlainFormulas) {
  const std::vector<std::vector<SampleRow>> batches = {
      pair_rows(1, {{{1, 1}}, {{1, 1}}}), pair_rows(7, {{{3, 2}, {2, 1}}, {{2, 6}}, {{7, 1}}, {{1, 1}, {1, 1}}}),
      pair_rows(33, {{{9, 4}, {5, 5}, {3, 8}}, {{2, 1}, {20, 2}}, {{33, 1}}})};
  for (const PositionEmbedding positions : kPositions)
    for (const auto& rows : batches)
      for (int64_t flags = 0; flags < 4; ++flags) {
        data::RowRules rules;
        rules.objective = {
            .kind = Objective::Kind::kMultitask, .whole_input = (flags & 1) != 0, .norm_target_loss = (flags & 2) != 0};
        expect_loss_and_gradients(
            plain_gpt::awkward_gpt(positions), rows, rules, wanted_of_pairs(rows, rules.objective),
            concat("positions ", static_cast<int>(positions), " length ", length_of(rows), " flags ", flags));
      }
}

TEST(GptObjective, MupHasTheLossAndGradientsOfPlainFormulas) {
  for (const PositionEmbedding positions : kPositions)
    for (const bool gives_output_mult : {false, true}) {
      families::GptConfig config = plain_gpt::awkward_gpt(positions);
      config.mup = plain_gpt::awkward_mup();
      if (gives_output_mult) config.mup.mup_output_mult = 0.4;
      data::RowRules rules;
      rules.objective = {.kind = Objective::Kind::kPrefix};
      rules.text = {.eod = static_cast<int32_t>(kEod)};
      rules.seed = 1234;
      const auto rows = text_rows(33);
      expect_loss_and_gradients(config, rows, rules, wanted_of_prefixes(rows, rules),
                                concat("positions ", static_cast<int>(positions), " given ", gives_output_mult));
    }
}

TEST(GptObjective, SoftCapsHaveTheLossAndGradientsOfPlainFormulas) {
  for (const PositionEmbedding positions : kPositions) {
    families::GptConfig config = plain_gpt::awkward_gpt(positions);
    config.logit_soft_cap = 2;
    config.attn_logit_soft_cap = 0.5;
    data::RowRules rules;
    rules.objective = {.kind = Objective::Kind::kPrefix};
    rules.text = {.eod = static_cast<int32_t>(kEod)};
    rules.seed = 1234;
    const auto rows = text_rows(33);
    expect_loss_and_gradients(config, rows, rules, wanted_of_prefixes(rows, rules),
                              concat("positions ", static_cast<int>(positions)));
  }
}

// A pair in the middle of a row is trained on as if it were alone in one.
TEST(GptObjective, APairLearnsNothingFromItsNeighbours) {
  for (const PositionEmbedding positions : kPositions) {
    data::RowRules rules;
    rules.objective = {.kind = Objective::Kind::kMultitask, .whole_input = true};
    const auto loss_of = [&](const std::vector<SampleRow>& rows, int64_t row_of_loss) {
      plain_gpt::WholeGpt gpt(plain_gpt::awkward_gpt(positions));
      tensor::Batch batch = make_gpt_batch(rows, rules);
      const at::Tensor segments = at::tensor(rows[0].sample.arrays[1], at::kLong).narrow(0, 0, length_of(rows));
      batch.loss_mask *= (segments == row_of_loss).to(at::kFloat);
      pipeline::Runner runner({&gpt.model}, dist::single_process().pipeline, gpt.params.grad_queue());
      return runner.evaluate({{plan::Action::Kind::kForward, 0}}, {batch})[0].sum;
    };
    auto packed = pair_rows(33, {{{9, 4}, {6, 5}, {3, 4}}});
    const auto middle = [&](size_t field) {
      const Ids& ids = packed[0].sample.arrays[field];
      return Ids(ids.begin() + 13, ids.begin() + 24);
    };
    const std::vector<SampleRow> alone = {{0, {{middle(0), Ids(11, 1), middle(2)}, 0}}};
    EXPECT_NEAR(loss_of(packed, 2), loss_of(alone, 1), 1e-4) << static_cast<int>(positions);
    for (const size_t at : {0, 5, 11, 12, 24, 30}) packed[0].sample.arrays[0][at] = 1;  // of the others
    EXPECT_NEAR(loss_of(packed, 2), loss_of(alone, 1), 1e-4) << static_cast<int>(positions);
  }
}

}  // namespace gpt_objective_test
}  // namespace espalier::models
