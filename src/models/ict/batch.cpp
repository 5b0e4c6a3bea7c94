#include "models/ict/batch.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "data/ict_dataset.h"
#include "models/bert/batch.h"

namespace espalier::models {
namespace {

int64_t num_used(const std::vector<int64_t>& mask) { return std::accumulate(mask.begin(), mask.end(), int64_t{0}); }

}  // namespace

tensor::Batch make_retrieval_batch(const std::vector<RetrievalRow>& rows, bool may_lack_contexts) {
  ESPALIER_CHECK(!rows.empty() && !rows[0].contexts.empty(), "a batch needs queries and contexts");
  const auto queries = static_cast<int64_t>(rows.size()), each = static_cast<int64_t>(rows[0].contexts.size());
  const int64_t b = queries * (1 + each), s = static_cast<int64_t>(rows[0].query.ids.size());
  tensor::Batch batch;
  batch.ids = at::empty({b, s}, at::kLong);
  batch.labels = at::empty({b, 1}, at::kLong);
  batch.loss_mask = at::ones({b, s}, at::kFloat);
  batch.positions = at::arange(s, at::kLong).expand({b, s}).contiguous();
  batch.sample_numbers.resize(static_cast<size_t>(b));
  const at::Tensor last_keys = at::empty({b, s}, at::kInt), weights = at::empty({queries}, at::kFloat);
  const auto fill = [&](int64_t row, const EncodedText& text, int64_t number, int64_t label) {
    ESPALIER_CHECK(static_cast<int64_t>(text.ids.size()) == s, "texts of one batch differ in length");
    std::copy(text.ids.begin(), text.ids.end(), batch.ids.data_ptr<int64_t>() + row * s);
    int32_t* const keys = last_keys.data_ptr<int32_t>() + row * s;
    for (int64_t at = 0; at < s; ++at) keys[at] = static_cast<int32_t>(at < text.used ? text.used - 1 : -1);
    batch.sample_numbers[static_cast<size_t>(row)] = number;
    batch.labels.data_ptr<int64_t>()[row] = label;
  };
  for (int64_t query = 0; query < queries; ++query) {
    const RetrievalRow& row = rows[static_cast<size_t>(query)];
    ESPALIER_CHECK(static_cast<int64_t>(row.contexts.size()) == each, "queries of one batch differ in their contexts");
    const int64_t number = row.sample_number * (1 + each);
    fill(query, row.query, number, row.label);
    for (int64_t at = 0; at < each; ++at) {
      // The answers of all queries, then each query's others.
      const int64_t place = at == 0 ? queries + query : 2 * queries + query * (each - 1) + at - 1;
      fill(place, row.contexts[static_cast<size_t>(at)], number + 1 + at, row.label);
    }
    weights.data_ptr<float>()[query] = row.weight;
  }
  batch.extra = {{kLastKeys, last_keys}, {kTokenTypes, at::zeros({b, s}, at::kLong)}, {kSampleWeights, weights}};
  if (may_lack_contexts)
    batch.extra[kContextsThere] = (last_keys.narrow(0, queries, b - queries).select(1, 0) >= 0).to(at::kFloat);
  batch.targets = {{"loss", weights.sum().item<double>()}};
  return batch;
}

tensor::Batch make_ict_batch(const std::vector<SampleRow>& rows) {
  using Array = data::IctDataset::Array;
  std::vector<RetrievalRow> texts;
  for (const SampleRow& row : rows) {
    const auto& arrays = row.sample.arrays;
    ESPALIER_CHECK(arrays.size() > Array::kBlockData, "a batch needs ICT's samples");
    texts.push_back({.sample_number = row.sample_number,
                     .query = {arrays[Array::kQueryTokens], num_used(arrays[Array::kQueryPadMask])},
                     .contexts = {{arrays[Array::kContextTokens], num_used(arrays[Array::kContextPadMask])}},
                     .label = arrays[Array::kBlockData].back()});
  }
  return make_retrieval_batch(texts);
}

}  // namespace espalier::models
