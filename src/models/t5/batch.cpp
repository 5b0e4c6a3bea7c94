#include "models/t5/batch.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/error.h"

namespace espalier::models {
namespace {

// The arrays of a sample, in the order in which it has them (data/sentence_sample.h).
enum T5Field : size_t { kTextEnc, kTextDec, kT5Labels, kT5LossMask };

// Number of tokens before the padding.
int64_t length_without_padding(const std::vector<int64_t>& ids, int64_t pad) {
  const auto last = std::find_if(ids.rbegin(), ids.rend(), [pad](int64_t id) { return id != pad; });
  return static_cast<int64_t>(ids.rend() - last);
}

struct T5Rows {
  at::Tensor encoder_ids, encoder_positions, encoder_last_keys, cross_last_keys;
};

void fill_encoder_row(const std::vector<int64_t>& text, int64_t used, int64_t row, const T5Rows& out) {
  const auto length = static_cast<int64_t>(text.size());
  int64_t* const ids = out.encoder_ids.data_ptr<int64_t>() + row * length;
  int64_t* const positions = out.encoder_positions.data_ptr<int64_t>() + row * length;
  int32_t* const last_keys = out.encoder_last_keys.data_ptr<int32_t>() + row * length;
  for (int64_t at = 0; at < length; ++at) {
    ids[at] = text[static_cast<size_t>(at)];
    positions[at] = at;
    last_keys[at] = static_cast<int32_t>(at < used ? used - 1 : -1);
  }
}

// Returns the number of tokens to predict.
double fill_decoder_row(const data::Sample& sample, int64_t encoder_used, int64_t row, const tensor::Batch& batch,
                        const T5Rows& out) {
  const int64_t length = batch.ids.size(1);
  double targets = 0;
  for (int64_t at = 0; at < length; ++at) {
    const auto place = static_cast<size_t>(at);
    const int64_t loss_mask = sample.arrays[kT5LossMask][place], element = row * length + at;
    targets += static_cast<double>(loss_mask);
    batch.ids.data_ptr<int64_t>()[element] = sample.arrays[kTextDec][place];
    batch.labels.data_ptr<int64_t>()[element] = std::max<int64_t>(0, sample.arrays[kT5Labels][place]);
    batch.positions.data_ptr<int64_t>()[element] = at;
    batch.loss_mask.data_ptr<float>()[element] = static_cast<float>(loss_mask);
    out.cross_last_keys.data_ptr<int32_t>()[element] = static_cast<int32_t>(loss_mask != 0 ? encoder_used - 1 : -1);
  }
  return targets;
}

}  // namespace

tensor::Batch make_t5_batch(const std::vector<SampleRow>& rows, int64_t pad) {
  ESPALIER_CHECK(!rows.empty() && rows[0].sample.arrays.size() > kT5LossMask, "a batch needs T5's samples");
  const auto b = static_cast<int64_t>(rows.size());
  const auto encoder = static_cast<int64_t>(rows[0].sample.arrays[kTextEnc].size());
  const auto decoder = static_cast<int64_t>(rows[0].sample.arrays[kTextDec].size());
  tensor::Batch batch;
  batch.ids = at::empty({b, decoder}, at::kLong);
  batch.labels = at::empty({b, decoder}, at::kLong);
  batch.loss_mask = at::empty({b, decoder}, at::kFloat);
  batch.positions = at::empty({b, decoder}, at::kLong);
  const T5Rows out{at::empty({b, encoder}, at::kLong), at::empty({b, encoder}, at::kLong),
                   at::empty({b, encoder}, at::kInt), at::empty({b, decoder}, at::kInt)};
  double targets = 0;
  for (int64_t row = 0; row < b; ++row) {
    const SampleRow& sample = rows[static_cast<size_t>(row)];
    const std::vector<std::vector<int64_t>>& arrays = sample.sample.arrays;
    ESPALIER_CHECK(static_cast<int64_t>(arrays[kTextEnc].size()) == encoder &&
                       static_cast<int64_t>(arrays[kTextDec].size()) == decoder,
                   "rows of one batch differ in length");
    batch.sample_numbers.push_back(sample.sample_number);
    batch.sources.push_back(static_cast<int32_t>(sample.sample.source));
    const int64_t used = length_without_padding(arrays[kTextEnc], pad);
    fill_encoder_row(arrays[kTextEnc], used, row, out);
    targets += fill_decoder_row(sample.sample, used, row, batch, out);
  }
  batch.extra = {{kEncoderIds, out.encoder_ids},
                 {kEncoderPositions, out.encoder_positions},
                 {kEncoderLastKeys, out.encoder_last_keys},
                 {kCrossLastKeys, out.cross_last_keys}};
  batch.targets = {{"lm loss", targets}};
  return batch;
}

}  // namespace espalier::models
