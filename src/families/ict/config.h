// Two encoders of text, one of queries and one of contexts (blocks of text, passages), whose vectors have a large inner
// product where the context answers the query; and their first training, the inverse cloze task.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/ict_dataset.h"
#include "families/bert/config.h"

namespace espalier::families {

// A text's vector is the last hidden state of its first token, or a linear projection of it.
struct BiencoderConfig {
  BertConfig bert;             // of each tower; token types are 0 throughout
  int64_t projection_dim = 0;  // 0: no projection
  bool shared = false;         // one tower encodes queries and contexts

  int64_t embedding_size() const { return projection_dim > 0 ? projection_dim : bert.hidden_size; }
  int64_t num_layers() const { return shared ? bert.num_layers : 2 * bert.num_layers; }
  int64_t last_depth() const { return num_layers() + 1; }
  // Their prefixes are upstream's keys: "query_model.", "context_model."; both are "shared_model." where they are one.
  BertConfig query_tower() const;
  BertConfig context_tower() const;
};

std::vector<spec::ParamSpec> biencoder_params(const BiencoderConfig& config);

// What the options of a run fill, whatever the vectors are learned from.
struct BiencoderSettings {
  BertSettings bert;
  int64_t projection_dim = 0;
  bool shared = false;
  bool score_scaling = false;  // scores are divided by the root of the hidden size
  std::vector<int64_t> topk_accuracies;
};

// Of config::RunConfig::model.
struct IctSettings {
  BiencoderSettings biencoder;
  data::IctSampleOptions samples;  // as far as options say it
  std::string bert_load;
};

const config::Family& ict_family();

// Of a resolved run, with the run's vocabulary where that is known.
BiencoderConfig biencoder_config(const BiencoderSettings& settings, const spec::Vocabulary& vocabulary);

// How the run's samples are made; the vocabulary is the caller's to add.
data::IctSampleOptions ict_samples(const config::RunConfig& run);

}  // namespace espalier::families
