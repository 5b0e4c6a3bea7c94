// Retro (Borgeaud et al. 2022) as Megatron builds it: a GPT that reads, besides what it continues, texts that resemble
// what it has read. Its shape, and the list of its parameters.
//
// A sample is cut into chunks of `chunk_length` tokens, each of which has neighbours: pieces of other documents, of
// `retrieved_length()` tokens. Some layers of the GPT attend to the neighbours of the chunk before; the first of these
// owns the encoder that has read them, which attends to the chunk whose neighbours they are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/family.h"
#include "config/run_config.h"
#include "data/decoder_masks.h"
#include "families/gpt/config.h"
#include "families/transformer.h"
#include "spec/model_spec.h"

namespace espalier::families {

// Sizes are global.
struct RetroConfig {
  GptConfig gpt;
  bool retrieves = false;  // --retro-add-retriever; without it the model is the GPT
  int64_t encoder_layers = 2;
  double encoder_hidden_dropout = 0.1, encoder_attention_dropout = 0.1;
  int64_t chunk_length = 64;
  int64_t num_neighbors = 2;         // of each chunk
  int64_t num_retrieved_chunks = 2;  // a neighbour is a chunk of the database and what follows it there

  int64_t retrieved_length() const { return num_retrieved_chunks * chunk_length; }
  // Layers count from 0: the sixth, or of more than 15 layers the ninth, and every third from there on.
  int64_t first_retrieval_layer() const { return gpt.num_layers <= 15 ? 5 : 8; }
  bool retrieves_in(int64_t layer) const;
  int64_t num_retrieval_layers() const;

  TransformerShape layers() const;            // of the GPT, those without retrieval
  TransformerShape retrieval_layers() const;  // the same with attention to neighbours
  TransformerShape encoder() const;           // of the neighbours: "layers.5.retriever.layers.0" is its first layer
  bool operator==(const RetroConfig&) const = default;
};

// The parameters in the order of the layers: as gpt_params(), with those of the encoder after those of the layer that
// owns it. Names: docs/checkpoint-format.md.
std::vector<spec::ParamSpec> retro_params(const RetroConfig& config);

// Parameters, depths and what they cost for samples of that length, a multiple of the chunk length.
spec::ModelSpec retro_model_spec(const RetroConfig& config, int64_t sequence_length, const data::RowRules& rows);

// What the options of a run fill (config::RunConfig::model).
struct RetroSettings {
  GptSettings gpt;
  RetroConfig shape;    // its `gpt` is set by resolving
  std::string workdir;  // of `espalier retro build`
  bool without_neighbors = false;
  int64_t cyclic_train_iters = 0;
};

const config::Family& retro_family();

// The model of a resolved run, with the run's vocabulary where that is known.
RetroConfig retro_config(const config::RunConfig& run);

// Whether samples of the run come with neighbours.
bool reads_neighbors(const config::RunConfig& run);

// What the model of a resolved run is trained on; the end-of-document token is the caller's to add.
data::RowRules retro_row_rules(const config::RunConfig& run);

// The data sets of the run: --retro-cyclic-train-iters may make the training set smaller than the run.
data::DataSetOptions retro_data_sets(data::DataSetOptions options, const config::RunConfig& run);

}  // namespace espalier::families
