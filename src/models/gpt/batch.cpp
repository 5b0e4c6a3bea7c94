#include "models/gpt/batch.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <span>
#include <type_traits>

#include "base/error.h"
#include "families/gpt/config.h"

namespace espalier::models {
namespace {

template <class Value>
void copy_row(std::span<Value> values, const at::Tensor& to, int64_t row) {
  ESPALIER_CHECK(static_cast<int64_t>(values.size()) == to.size(1), "rows of one batch differ in length");
  using Element = std::remove_const_t<Value>;
  std::copy(values.begin(), values.end(), to.data_ptr<Element>() + row * to.size(1));
}

// The rows as long as their stage of the run has them.
std::vector<SampleRow> truncated(std::vector<SampleRow> rows, const data::RowRules& rules) {
  for (SampleRow& row : rows) {
    const data::LengthStage stage = data::length_at(rules.lengths, row.sample_number, 0);
    if (!stage.truncates) continue;
    for (std::vector<int64_t>& array : row.sample.arrays)
      array.resize(std::min(array.size(), static_cast<size_t>(stage.length) + 1));
  }
  return rows;
}

}  // namespace

tensor::Batch make_gpt_batch(const std::vector<SampleRow>& whole_rows, const data::RowRules& rules) {
  const std::vector<SampleRow> rows = truncated(whole_rows, rules);
  ESPALIER_CHECK(!rows.empty() && rows[0].sample.arrays.at(0).size() > 1, "a batch needs rows of at least two ids");
  const auto b = static_cast<int64_t>(rows.size()), s = static_cast<int64_t>(rows[0].sample.arrays[0].size()) - 1;
  const bool is_causal = rules.objective.kind == data::Objective::Kind::kCausal;
  tensor::Batch batch;
  batch.ids = at::empty({b, s}, at::kLong);
  batch.labels = at::empty({b, s}, at::kLong);
  batch.loss_mask = at::empty({b, s}, at::kFloat);
  batch.positions = at::empty({b, s}, at::kLong);
  const at::Tensor last_keys = at::empty({b, s}, at::kInt), row_targets = at::empty({b}, at::kFloat);
  double targets = 0;
  for (int64_t row = 0; row < b; ++row) {
    const SampleRow& sample = rows[static_cast<size_t>(row)];
    const std::span<const int64_t> ids = sample.sample.arrays.at(0);
    const data::RowMasks masks = data::row_masks(sample.sample, sample.sample_number, rules);
    batch.sample_numbers.push_back(sample.sample_number);
    batch.sources.push_back(static_cast<int32_t>(sample.sample.source));
    copy_row(ids.first(ids.size() - 1), batch.ids, row);
    copy_row(ids.last(ids.size() - 1), batch.labels, row);
    copy_row(std::span(masks.positions), batch.positions, row);
    copy_row(std::span(masks.loss_mask), batch.loss_mask, row);
    if (!masks.first_keys.empty()) {
      // Rows without see from the first key on.
      if (!batch.document_starts.defined()) batch.document_starts = at::zeros({b, s}, at::kInt);
      copy_row(std::span(masks.first_keys), batch.document_starts, row);
    }
    if (is_causal) continue;
    copy_row(std::span(masks.last_keys), last_keys, row);
    row_targets.data_ptr<float>()[row] = static_cast<float>(masks.num_targets);
    targets += masks.num_targets;
  }
  if (is_causal) return batch;
  batch.extra = {{kLastKeys, last_keys}, {kRowTargets, row_targets}};
  batch.targets = {{"lm loss", targets}};
  return batch;
}

data::RowRules gpt_row_rules(const config::RunConfig& run, const text::Tokenizer& tokenizer) {
  data::RowRules rules = families::row_rules(run);
  Problems problems;
  rules.text = data::TextMaskOptions::make(rules.text, tokenizer, problems);
  problems.raise();
  return rules;
}

}  // namespace espalier::models
