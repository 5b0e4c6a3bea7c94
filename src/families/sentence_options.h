// Rows of the options that decide samples of sentences (data/sentence_sample.h), for `espalier train` and `espalier
// data sample` alike. The variables outlive the table.
#pragma once

#include <cstdint>

#include "base/options.h"
#include "data/ict_dataset.h"
#include "data/sentence_sample.h"

namespace espalier::families {

// --mask-prob, which it returns, and --short-seq-prob.
Option& add_masking_rows(OptionTable& table, data::SentenceModel model, double& mask_probability,
                         double& short_probability);
// BERT's.
Option& add_binary_head_row(OptionTable& table, bool& binary_head);
// T5's.
Option& add_decoder_length_row(OptionTable& table, int64_t& decoder_length);

// ICT's, of its queries and blocks; the first of them is --titles-data-path, which it returns.
Option& add_ict_rows(OptionTable& table, data::IctSampleOptions& samples);

}  // namespace espalier::families
