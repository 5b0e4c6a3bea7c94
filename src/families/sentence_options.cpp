#include "families/sentence_options.h"

namespace espalier::families {

Option& add_masking_rows(OptionTable& table, data::SentenceModel model, double& mask_probability,
                         double& short_probability) {
  Option& mask = table.add("--mask-prob", mask_probability,
                           model == data::SentenceModel::kT5 ? "share of the tokens that are left out"
                                                             : "share of the tokens that are to be predicted");
  table.add("--short-seq-prob", short_probability, "share of the samples that are cut shorter, at random");
  return mask;
}

Option& add_binary_head_row(OptionTable& table, bool& binary_head) {
  return table.add_negative("--bert-no-binary-head", binary_head,
                            "masked words only: samples are one text instead of two halves, and the model has no token "
                            "types, pooler and head for their order");
}

Option& add_decoder_length_row(OptionTable& table, int64_t& decoder_length) {
  return table.add("--decoder-seq-length", decoder_length, "tokens of the decoder; --seq-length is the encoder's")
      .minimum(1)
      .maximum(1e9)
      .required();
}

Option& add_ict_rows(OptionTable& table, data::IctSampleOptions& samples) {
  Option& titles = table
                       .add("--titles-data-path", samples.titles_data_path,
                            "token files with each document's title, one sequence each")
                       .value_name("PREFIX");
  table.add("--query-in-block-prob", samples.query_in_block_prob, "share of the blocks that keep the query")
      .minimum(0)
      .maximum(1);
  table.add("--use-one-sent-docs", samples.use_one_sent_docs, "take documents and blocks of one sentence too");
  return titles;
}

}  // namespace espalier::families
