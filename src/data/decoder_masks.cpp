#include "data/decoder_masks.h"

#include <algorithm>
#include <numeric>

#include "base/format.h"
#include "data/gpt_dataset.h"
#include "data/numpy_random.h"
#include "data/packed_dataset.h"

namespace espalier::data {
namespace {

// The documents of a row of inputs, as ranges that end after their EOD, and the place of that: s where there is none.
struct RowDocument {
  int64_t begin = 0, eod = 0;
};

std::vector<RowDocument> documents_of(std::span<const int64_t> inputs, int64_t eod_id) {
  const auto length = static_cast<int64_t>(inputs.size());
  std::vector<RowDocument> documents;
  int64_t begin = 0;
  for (int64_t at = 0; at < length; ++at) {
    if (inputs[static_cast<size_t>(at)] != eod_id) continue;
    documents.push_back({begin, at});
    begin = at + 1;
  }
  if (begin < length) documents.push_back({begin, length});
  return documents;
}

std::vector<TextPrefix> draw_prefixes(std::span<const int64_t> inputs, int64_t number, const RowRules& rules) {
  NumpyRandom random(static_cast<uint32_t>(rules.seed + number));
  const auto length = static_cast<int64_t>(inputs.size());
  if (!rules.text.reset_attention_mask) return {{0, random.integer(1, length + 1)}};
  std::vector<TextPrefix> prefixes;
  for (const RowDocument& document : documents_of(inputs, *rules.text.eod))
    prefixes.push_back({document.begin, document.eod == document.begin
                                            ? document.begin + 1
                                            : random.integer(document.begin + 1, document.eod + 1)});
  return prefixes;
}

// In the order of operations of upstream, in float.
float weight_of_position(int64_t at, int64_t length) {
  return static_cast<float>(length - at) / static_cast<float>(length + 1) * 2;
}

// Of the loss mask of a row: the mean over the prefixes from 1 to `length` tokens.
double expected_targets(int64_t length, const Objective& objective) {
  const auto s = static_cast<double>(length);
  if (!objective.loss_on_targets_only) return s;
  return objective.reweight_positions ? (s + 2) / 3 : (s + 1) / 2;
}

// Each run of labels that count then weighs 1. Returns the number of runs.
int64_t share_out_runs(std::vector<float>& loss_mask) {
  int64_t runs = 0;
  for (auto begin = loss_mask.begin(); begin != loss_mask.end();) {
    const auto end = std::find_if(begin, loss_mask.end(), [&](float weight) { return weight != *begin; });
    if (*begin != 0) {
      std::fill(begin, end, 1.0f / static_cast<float>(end - begin));
      ++runs;
    }
    begin = end;
  }
  return runs;
}

}  // namespace

std::vector<std::string> Objective::token_file_endings() const {
  if (kind != Kind::kMultitask) return {""};
  return {kInputsEnding, kTargetsEnding};
}

TextMaskOptions TextMaskOptions::make(TextMaskOptions wanted, const text::Tokenizer& tokenizer, Problems& problems) {
  if (!wanted.reset_position_ids && !wanted.reset_attention_mask && !wanted.eod_mask_loss) return wanted;
  wanted.eod = tokenizer.eod();
  if (!wanted.eod)
    problems.add("--reset-position-ids, --reset-attention-mask and --eod-mask-loss need an end-of-document token, and ",
                 tokenizer.description(), " has none. Leave them out, or give the tokenizer an EOS token.");
  return wanted;
}

RowMasks causal_masks(std::span<const int64_t> ids, const TextMaskOptions& options, int64_t length,
                      std::span<const int64_t> segments) {
  const size_t num_inputs = ids.size() - 1;
  const bool is_divided = length > 0 && length < static_cast<int64_t>(num_inputs);
  RowMasks masks;
  masks.positions.resize(num_inputs);
  masks.loss_mask.resize(num_inputs, 1);
  if (options.reset_attention_mask || is_divided) masks.first_keys.resize(num_inputs);
  int64_t document = 0;  // where the present one begins
  for (size_t at = 0; at < num_inputs; ++at) {
    const auto place = static_cast<int64_t>(at);
    const int64_t sequence = is_divided ? place - place % length : 0;  // where the present one begins
    const bool is_eod = options.eod && ids[at] == *options.eod;
    const bool ends_document = segments.empty() ? is_eod : segments[at + 1] != segments[at];
    const bool has_label = segments.empty() || (segments[at] != 0 && !ends_document);
    masks.positions[at] = place - (options.reset_position_ids ? std::max(document, sequence) : sequence);
    if (!has_label || (options.eod_mask_loss && is_eod)) masks.loss_mask[at] = 0;
    if (!masks.first_keys.empty())
      masks.first_keys[at] =
          static_cast<int32_t>(options.reset_attention_mask ? std::max(document, sequence) : sequence);
    if (ends_document) document = place + 1;
  }
  masks.num_targets = std::accumulate(masks.loss_mask.begin(), masks.loss_mask.end(), 0.0);
  return masks;
}

RowMasks prefix_masks(std::span<const int64_t> ids, int64_t number, const RowRules& rules) {
  const auto length = static_cast<int64_t>(ids.size()) - 1;
  RowMasks masks = causal_masks(ids, rules.text);
  masks.prefixes = draw_prefixes(ids.first(static_cast<size_t>(length)), number, rules);
  masks.last_keys.resize(static_cast<size_t>(length));
  std::iota(masks.last_keys.begin(), masks.last_keys.end(), 0);
  for (const TextPrefix& prefix : masks.prefixes) {
    std::fill(masks.last_keys.begin() + prefix.begin, masks.last_keys.begin() + prefix.end,
              static_cast<int32_t>(prefix.end - 1));
    // The last token of a prefix predicts the first target.
    if (rules.objective.loss_on_targets_only)
      std::fill(masks.loss_mask.begin() + prefix.begin, masks.loss_mask.begin() + prefix.end - 1, 0.0f);
  }
  if (rules.objective.reweight_positions)
    for (int64_t at = 0; at < length; ++at) masks.loss_mask[static_cast<size_t>(at)] *= weight_of_position(at, length);
  masks.num_targets = expected_targets(length, rules.objective);
  return masks;
}

RowMasks pair_masks(std::span<const int64_t> ids, std::span<const int64_t> segments, std::span<const int64_t> is_input,
                    const RowRules& rules) {
  const size_t length = ids.size() - 1;
  RowMasks masks;
  masks.positions.resize(length);
  masks.loss_mask.resize(length);
  masks.first_keys.resize(length);
  masks.last_keys.resize(length, -1);  // padding sees nothing
  int64_t num_labels = 0;
  for (size_t begin = 0, end = 0; begin < length && segments[begin] != 0; begin = end) {
    size_t target = begin;  // the first of them; a pair that the row cuts has its target's last token as a label only
    for (end = begin; end < length && segments[end] == segments[begin]; ++end)
      if (is_input[end] != 0) target = end + 1;
    for (size_t at = begin; at < end; ++at) {
      const bool sees_input = rules.objective.whole_input && at < target;
      masks.positions[at] = static_cast<int64_t>(at - begin);
      masks.first_keys[at] = static_cast<int32_t>(begin);
      masks.last_keys[at] = static_cast<int32_t>(sees_input ? target - 1 : at);
      const bool has_label = segments[at + 1] == segments[at] && is_input[at + 1] == 0;
      const bool is_masked = rules.text.eod_mask_loss && ids[at] == *rules.text.eod;
      if (!has_label || is_masked) continue;
      masks.loss_mask[at] = 1;
      ++num_labels;
    }
  }
  const bool shares = rules.objective.norm_target_loss;
  masks.num_targets = static_cast<double>(shares ? share_out_runs(masks.loss_mask) : num_labels);
  return masks;
}

RowMasks row_masks(const Sample& sample, int64_t number, const RowRules& rules) {
  switch (rules.objective.kind) {
    case Objective::Kind::kCausal:
      return causal_masks(
          sample.arrays.at(GptDataset::kIds), rules.text, length_at(rules.lengths, number, 0).length,
          rules.packing == Packing::kBestFit ? sample.arrays.at(GptDataset::kSegments) : std::span<const int64_t>());
    case Objective::Kind::kPrefix: return prefix_masks(sample.arrays.at(0), number, rules);
    case Objective::Kind::kMultitask:
      return pair_masks(sample.arrays.at(PackedDataset::kIds), sample.arrays.at(PackedDataset::kSegments),
                        sample.arrays.at(PackedDataset::kIsInput), rules);
  }
  ESPALIER_CHECK(false, "unknown objective");
  return {};
}

}  // namespace espalier::data
