#include "models/bert/batch.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace espalier::models {
namespace {

// The arrays of a sample, in the order in which it has them (data/sentence_sample.h).
enum BertField : size_t { kText, kTypes, kLabels, kIsRandom, kLossMask, kPaddingMask };

struct BertRow {
  int64_t *ids, *labels, *positions, *types;
  float* loss_mask;
  int32_t* last_keys;
};

// Returns the number of tokens to predict.
double fill_bert_row(const data::Sample& sample, int64_t length, const BertRow& out) {
  const std::vector<int64_t>& padding_mask = sample.arrays.at(kPaddingMask);
  const int64_t used = std::accumulate(padding_mask.begin(), padding_mask.end(), int64_t{0});
  double targets = 0;
  for (int64_t at = 0; at < length; ++at) {
    const auto place = static_cast<size_t>(at);
    const bool is_used = at < used;
    ESPALIER_CHECK((padding_mask[place] != 0) == is_used, "padding before the end of a sample");
    const int64_t loss_mask = sample.arrays[kLossMask][place];
    targets += static_cast<double>(loss_mask);
    out.ids[at] = sample.arrays[kText][place];
    out.labels[at] = std::max<int64_t>(0, sample.arrays[kLabels][place]);
    out.positions[at] = at;
    // A sample's padding has PAD as its type, which may be no type; what is there changes nothing.
    out.types[at] = is_used ? sample.arrays[kTypes][place] : 0;
    out.loss_mask[at] = static_cast<float>(loss_mask);
    out.last_keys[at] = static_cast<int32_t>(is_used ? used - 1 : -1);
  }
  return targets;
}

}  // namespace

tensor::Batch make_bert_batch(const std::vector<SampleRow>& rows, bool binary_head) {
  ESPALIER_CHECK(!rows.empty() && rows[0].sample.arrays.size() > kPaddingMask, "a batch needs BERT's samples");
  const auto b = static_cast<int64_t>(rows.size()), s = static_cast<int64_t>(rows[0].sample.arrays[kText].size());
  tensor::Batch batch;
  batch.ids = at::empty({b, s}, at::kLong);
  batch.labels = at::empty({b, s}, at::kLong);
  batch.loss_mask = at::empty({b, s}, at::kFloat);
  batch.positions = at::empty({b, s}, at::kLong);
  const at::Tensor types = at::empty({b, s}, at::kLong), last_keys = at::empty({b, s}, at::kInt);
  const at::Tensor swapped = at::empty({b}, at::kLong);
  double targets = 0;
  for (int64_t row = 0; row < b; ++row) {
    const SampleRow& sample = rows[static_cast<size_t>(row)];
    ESPALIER_CHECK(static_cast<int64_t>(sample.sample.arrays[kText].size()) == s, "rows of one batch differ in length");
    batch.sample_numbers.push_back(sample.sample_number);
    batch.sources.push_back(static_cast<int32_t>(sample.sample.source));
    targets += fill_bert_row(sample.sample, s,
                             {batch.ids.data_ptr<int64_t>() + row * s, batch.labels.data_ptr<int64_t>() + row * s,
                              batch.positions.data_ptr<int64_t>() + row * s, types.data_ptr<int64_t>() + row * s,
                              batch.loss_mask.data_ptr<float>() + row * s, last_keys.data_ptr<int32_t>() + row * s});
    swapped.data_ptr<int64_t>()[row] = sample.sample.arrays[kIsRandom].at(0);
  }
  batch.extra = {{kLastKeys, last_keys}, {kTokenTypes, types}};
  batch.targets = {{"lm loss", targets}};
  if (!binary_head) return batch;
  batch.extra.insert({kHalvesSwapped, swapped});
  batch.targets.emplace_back("sop loss", static_cast<double>(b));
  return batch;
}

}  // namespace espalier::models
