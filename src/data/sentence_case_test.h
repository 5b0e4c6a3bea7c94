// The random cases of sentence samples that upstream's own code made (tests/oracle/megatron_data_oracle.py).
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/sentence_dataset.h"

namespace espalier::test {

struct SentenceCase {
  data::DataSetOptions sets;
  data::SentenceSampleOptions samples;
};

// `one`: the case.json of that folder.
inline SentenceCase sentence_case(const std::filesystem::path& folder, const nlohmann::json& one) {
  const nlohmann::json& known = one["vocabulary"];
  data::SentenceVocabulary vocabulary{.size = known["size"],
                                      .cls = known["cls"],
                                      .sep = known["sep"],
                                      .mask = known["mask"],
                                      .pad = known["pad"],
                                      .bos = known["bos"],
                                      .eos = known["eos"],
                                      .sentinels = known["sentinels"],
                                      .continues_word = {}};
  vocabulary.continues_word.resize(static_cast<size_t>(vocabulary.size));
  for (const size_t id : known["continues_word"]) vocabulary.continues_word[id] = true;
  SentenceCase of;
  of.sets.train_data_path = {(folder / "set").string()};
  of.sets.sequence_length = one["sequence_length"];
  of.sets.seed = one["seed"];
  of.sets.train_samples = one["num_samples"];
  of.samples = {.model = one["model"] == "t5" ? data::SentenceModel::kT5 : data::SentenceModel::kBert,
                .sequence_length = one["sequence_length"],
                .decoder_sequence_length = one["decoder_sequence_length"],
                .mask_probability = one["mask_prob"],
                .short_probability = one["short_seq_prob"],
                .binary_head = one["binary_head"],
                .vocabulary = std::move(vocabulary)};
  return of;
}

}  // namespace espalier::test
