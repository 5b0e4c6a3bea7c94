#include "data/packed_dataset.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/format.h"

namespace espalier::data {
namespace {

PackedIndex build_index(const std::string& prefix, const TokenStore& inputs, const TokenStore& targets,
                        const PackedOptions& options) {
  if (inputs.num_sequences() != targets.num_sequences())
    throw UserError(concat("'", inputs.prefix(), "' has ", format_count(inputs.num_sequences()), " documents, '",
                           targets.prefix(), "' has ", format_count(targets.num_sequences()),
                           ": they are no pairs. A record with an empty text gives a document for one key only; leave ",
                           "such records out."),
                    ExitCode::kBadData);
  const PackedRequest request{documents_in_range(options.range, inputs.num_sequences()), options.sequence_length + 1,
                              options.num_samples, options.seed, prefix};
  return PackedIndex::build(inputs.sizes(), targets.sizes(), request);
}

}  // namespace

std::vector<uint8_t> PackedSample::loss_mask(int64_t pad_id) const {
  std::vector<uint8_t> mask(ids.size() - 1);
  for (size_t at = 0; at < mask.size(); ++at) mask[at] = !is_input[at + 1] && ids[at] != pad_id;
  return mask;
}

PackedDataset::PackedDataset(const std::string& prefix, const PackedOptions& options)
    : inputs_(prefix + "_inputs_document"),
      targets_(prefix + "_targets_document"),
      row_length_(options.sequence_length + 1),
      pad_id_(options.pad_id),
      index_(build_index(prefix, inputs_, targets_, options)) {}

void PackedDataset::sample(int64_t number, PackedSample& sample) const {
  const auto length = static_cast<size_t>(row_length_);
  sample.ids.assign(length, pad_id_);
  sample.segments.assign(length, 0);
  sample.positions.assign(length, 0);
  sample.is_input.assign(length, 0);
  int64_t at = 0, segment = 0;
  for (const int64_t pair : index_.pairs(number)) {
    const int64_t input = inputs_.size(pair), target = targets_.size(pair), end = at + input + target;
    ESPALIER_CHECK(end <= row_length_, end, " of ", row_length_);
    inputs_.read(pair, 0, input, sample.ids.data() + at);
    targets_.read(pair, 0, target, sample.ids.data() + at + input);
    std::fill(sample.segments.begin() + at, sample.segments.begin() + end, ++segment);
    std::iota(sample.positions.begin() + at, sample.positions.begin() + end, 0);
    std::fill_n(sample.is_input.begin() + at, input, 1);
    at = end;
  }
}

}  // namespace espalier::data
