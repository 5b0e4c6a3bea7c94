// A model and its tokenizer from a checkpoint, to generate, score or make vectors with.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "config/run_config.h"
#include "dist/grid.h"
#include "infer/engine/leading_model.h"
#include "infer/load_weight.h"
#include "infer/streamed_layers.h"
#include "models/build.h"
#include "models/decoder.h"
#include "tensor/param_set.h"
#include "text/tokenizer.h"

namespace espalier::infer {

struct LoadedModel {
  config::RunConfig config;  // of the training run
  int64_t step = 0;
  at::Device device = at::kCPU;
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::unique_ptr<tensor::ParamSet> params;      // compute type of the checkpoint, no gradients
  std::unique_ptr<StreamedLayers> layers;        // of WeightFormat::kStreamed
  std::unique_ptr<models::Decoder> model;        // null: fill_masks.h
  std::unique_ptr<models::TextEncoder> encoder;  // of load_text_encoder
  std::optional<models::TextEnds> text_ends;     // of a model whose prompts an encoder reads
  // Of the first of several processes that hold parts of the weights, set by whoever made it.
  Leader* leader = nullptr;

  Weights weights() const { return {params->compute_type(), device}; }
};

// How the weights are held: as they are saved, or the matrices of the layers in 8 bits (kernels/int8_weights.h), while
// embeddings, the output layer, norms and biases stay as they are; or the layers are read whenever they are needed
// (streamed_layers.h). What that saves is logged.
enum class WeightFormat { kSaved, kInt8, kStreamed };
inline WeightFormat weight_format(bool in_int8, bool is_streamed) {
  return is_streamed ? WeightFormat::kStreamed : in_int8 ? WeightFormat::kInt8 : WeightFormat::kSaved;
}
// Whether kInt8 holds it in 8 bits.
bool is_matrix_of_a_layer(const spec::ParamSpec& spec);

// `load` is a run folder (newest complete step, or `step`) or a step folder. Only weights are read, and checked. Of a
// grid with tensor ranks this process gets its part; it outlives the model. The weights come to the grid's device; on a
// GPU they are held as they are saved. A UserError where the ranks cannot divide them.
LoadedModel load_model(const std::string& load, std::optional<int64_t> step, WeightSet set = WeightSet::kWeights,
                       WeightFormat format = WeightFormat::kSaved, const dist::Grid& grid = dist::single_process());

// What the engine runs of it. The weights of several processes run while their leader lives.
std::unique_ptr<BatchModel> batch_model(const LoadedModel& loaded, const DecoderModelConfig& config);

// The same of a model that makes vectors of texts; a UserError names what else the folder holds.
LoadedModel load_text_encoder(const std::string& load, std::optional<int64_t> step = {},
                              WeightSet set = WeightSet::kWeights);

}  // namespace espalier::infer
