// Samples of T5 to a Batch.
#pragma once

#include <vector>

#include "models/data.h"
#include "tensor/batch.h"

namespace espalier::models {

// Names in Batch::extra; s the encoder's length, d the decoder's.
inline constexpr const char* kEncoderIds = "encoder_ids";              // [b, s] int64
inline constexpr const char* kEncoderPositions = "encoder_positions";  // [b, s] int64
inline constexpr const char* kEncoderLastKeys = "encoder_last_keys";   // [b, s] int32: what the encoder sees of itself
inline constexpr const char* kCrossLastKeys = "cross_last_keys";       // [b, d] int32: what the decoder sees of it

// Of rows with the arrays of data::SentenceSampleMaker for T5, in its order. ids, labels, loss_mask and positions are
// the decoder's, [b, d]. Padding is what ends text_enc with the id `pad`, and what the loss mask leaves out; it sees
// nothing of the encoder's sequence and is not seen. Batch::targets: "lm loss".
tensor::Batch make_t5_batch(const std::vector<SampleRow>& rows, int64_t pad);

}  // namespace espalier::models
