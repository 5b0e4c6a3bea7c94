#include "models/gpt/batch.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "base/format.h"

namespace espalier::models {
namespace {

// Fills one row of each mask. Megatron finds document ends from the positions before any reset; so do we.
struct RowMasks {
  int64_t* positions;
  float* loss_mask;
  int32_t* document_starts;  // nullptr without reset_attention_mask
};

void fill_row(const int64_t* ids, int64_t length, const MaskOptions& options, const RowMasks& out) {
  int64_t document_start = 0;
  for (int64_t at = 0; at < length; ++at) {
    const bool ends_document = options.eod && ids[at] == *options.eod;
    out.positions[at] = options.reset_position_ids ? at - document_start : at;
    out.loss_mask[at] = options.eod_mask_loss && ends_document ? 0.0f : 1.0f;
    if (out.document_starts != nullptr) out.document_starts[at] = static_cast<int32_t>(document_start);
    if (ends_document) document_start = at + 1;
  }
}

}  // namespace

tensor::Batch make_gpt_batch(const std::vector<SampleRow>& rows, const MaskOptions& options) {
  ESPALIER_CHECK(!rows.empty() && rows[0].sample.arrays.at(0).size() > 1, "a batch needs rows of at least two ids");
  const auto b = static_cast<int64_t>(rows.size()), s = static_cast<int64_t>(rows[0].sample.arrays[0].size()) - 1;
  tensor::Batch batch;
  batch.ids = at::empty({b, s}, at::kLong);
  batch.labels = at::empty({b, s}, at::kLong);
  batch.loss_mask = at::empty({b, s}, at::kFloat);
  batch.positions = at::empty({b, s}, at::kLong);
  if (options.reset_attention_mask) batch.document_starts = at::empty({b, s}, at::kInt);
  for (int64_t row = 0; row < b; ++row) {
    const SampleRow& sample = rows[static_cast<size_t>(row)];
    const std::vector<int64_t>& ids = sample.sample.arrays.at(0);
    ESPALIER_CHECK(static_cast<int64_t>(ids.size()) == s + 1, "rows of one batch differ in length");
    batch.sample_numbers.push_back(sample.sample_number);
    batch.sources.push_back(static_cast<int32_t>(sample.sample.source));
    std::copy_n(ids.data(), s, batch.ids.data_ptr<int64_t>() + row * s);
    std::copy_n(ids.data() + 1, s, batch.labels.data_ptr<int64_t>() + row * s);
    fill_row(ids.data(), s, options,
             {batch.positions.data_ptr<int64_t>() + row * s, batch.loss_mask.data_ptr<float>() + row * s,
              options.reset_attention_mask ? batch.document_starts.data_ptr<int32_t>() + row * s : nullptr});
  }
  return batch;
}

MaskOptions mask_options(const config::DataConfig& config, const text::Tokenizer& tokenizer) {
  MaskOptions masks{.eod = {},
                    .reset_position_ids = config.reset_position_ids,
                    .reset_attention_mask = config.reset_attention_mask,
                    .eod_mask_loss = config.eod_mask_loss};
  if (!masks.reset_position_ids && !masks.reset_attention_mask && !masks.eod_mask_loss) return masks;
  masks.eod = tokenizer.eod();
  if (!masks.eod)
    throw UserError(
        concat("--reset-position-ids, --reset-attention-mask and --eod-mask-loss need an end-of-document token, and ",
               tokenizer.description(), " has none. Leave them out, or give the tokenizer an EOS token."),
        ExitCode::kUsage);
  return masks;
}

}  // namespace espalier::models
