// What a decoder learns from a row of ids, and which of them each token sees: Megatron's masks, position ids and loss
// weights, with a first and a last visible key for each token where Megatron builds an s x s matrix.
//
//   const RowMasks masks = row_masks(sample, 17, {.objective = objective, .text = {.eod = 0}, .seed = 1234});
//
// A row has s + 1 ids: all but the last are the inputs of the model, all but the first its labels. Entry i of a mask
// belongs to input i and to its label, the id at i + 1.
//
// The prefixes of sample n of a run are what numpy.random.RandomState((seed + n) mod 2^32) draws: randint(1, s + 1),
// the number of its tokens; where attention stays inside documents, for each document from its beginning to the place
// `end` of its EOD (s for one that is cut off) randint(beginning + 1, end + 1), and nothing for a document that is an
// EOD alone, whose prefix it is. So every layout and every resumed run has the same.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/data_plan.h"
#include "data/objective.h"
#include "data/sample_source.h"
#include "text/tokenizer.h"

namespace espalier::data {

// Of running text. In pairs only eod_mask_loss counts: each is a text of its own.
struct TextMaskOptions {
  std::optional<int32_t> eod;         // needed by each of the following
  bool reset_position_ids = false;    // positions start again after every end of document
  bool reset_attention_mask = false;  // no attention across document ends; the EOD belongs to the document before it
  bool eod_mask_loss = false;         // no loss where the input is EOD

  // A problem where one of them is asked for and the tokenizer has no EOD.
  static TextMaskOptions make(TextMaskOptions wanted, const text::Tokenizer& tokenizer, Problems& problems);
};

struct RowRules {
  Objective objective;
  TextMaskOptions text;
  int64_t seed = 0;  // of prefixes
  // Of the causal objective: how samples are made, and how long the sequences in them are.
  Packing packing = Packing::kNone;
  std::vector<LengthStage> lengths;
};

// Tokens begin to end - 1 of a document that begins where the prefix does.
struct TextPrefix {
  int64_t begin = 0, end = 0;
  bool operator==(const TextPrefix&) const = default;
};

struct RowMasks {
  std::vector<int64_t> positions;
  std::vector<float> loss_mask;      // what the loss of each label weighs
  std::vector<int32_t> first_keys;   // empty: every token sees the first
  std::vector<int32_t> last_keys;    // empty: a token sees no later one. A token that sees nothing has -1
  std::vector<TextPrefix> prefixes;  // of the prefix objective, in order
  // What the weighted losses of the row are divided by: the sum of loss_mask, or the number of targets where each
  // weighs 1; with prefixes the sum that is to be expected of a row, as in Megatron-DeepSpeed, so that a long prefix
  // makes its few targets no heavier.
  double num_targets = 0;
};

// `sample` is of GptDataset ("text") or PackedDataset; `number` is its place in the run.
RowMasks row_masks(const Sample& sample, int64_t number, const RowRules& rules);

// The parts of row_masks, by objective. `ids`: s + 1 of them; segments and is_input as PackedDataset has them.
//
// Where the sequences of a row are shorter than it, each begins at a multiple of `length` (0: the row is one):
// attention and positions begin there again. Documents end at their EOD; with segments (GptDataset::kSegments) they end
// where those do, the last token of one has no label, and padding has none.
RowMasks causal_masks(std::span<const int64_t> ids, const TextMaskOptions& options, int64_t length = 0,
                      std::span<const int64_t> segments = {});
RowMasks prefix_masks(std::span<const int64_t> ids, int64_t number, const RowRules& rules);
RowMasks pair_masks(std::span<const int64_t> ids, std::span<const int64_t> segments, std::span<const int64_t> is_input,
                    const RowRules& rules);

}  // namespace espalier::data
