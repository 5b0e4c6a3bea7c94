// The registry with torch: how a family's stages are built and what can be done with a whole model.
#pragma once

#include <cstdint>
#include <memory>

#include "config/family.h"
#include "config/run_config.h"
#include "models/data.h"
#include "models/decoder.h"
#include "models/probe.h"
#include "nn/layer_builder.h"
#include "pipeline/stage.h"
#include "plan/partition.h"
#include "plan/recompute.h"
#include "text/tokenizer.h"

namespace espalier::models {

struct StageOptions {
  plan::Recompute recompute;
  uint64_t seed = 0;                // keys dropout
  bool divide_kept_inputs = false;  // of recomputed layers, over the tensor ranks
};

// Ids that the text of a decoder begins and ends with, where an encoder reads the prompt.
struct TextEnds {
  int32_t begin = 0, end = 0;
};

struct FamilyRuntime {
  const config::Family* family = nullptr;
  // The depths of a part of the model. The builder's ParamSet holds their parameters and outlives the stage.
  std::unique_ptr<pipeline::Stage> (*build)(const nn::LayerBuilder& builder, const config::RunConfig& run,
                                            const plan::DepthRange& depths, const StageOptions& options) = nullptr;
  // The run's data sets. Where `options` has a cache, one rank opens them before the others.
  DataSets (*open_data)(const data::DataSetOptions& options, const config::RunConfig& run,
                        const text::Tokenizer& tokenizer) = nullptr;
  bool labels_are_text = false;  // each in its place, so that losses can be counted by the bytes of that text
  Collate (*collate)(const config::RunConfig& run, const text::Tokenizer& tokenizer) = nullptr;
  // A whole model to generate and score with; null where the family's models cannot.
  std::unique_ptr<Decoder> (*build_decoder)(const nn::LayerBuilder& builder, const config::RunConfig& run) = nullptr;
  // Of a family with an encoder; null: its text continues from the prompt.
  TextEnds (*text_ends)(const text::Tokenizer& tokenizer) = nullptr;
  // Of a whole model that predicts masked words: ids [s] -> [s, V] fp32. Null where the family's models do not.
  at::Tensor (*masked_logits)(const nn::LayerBuilder& builder, const config::RunConfig& run,
                              const at::Tensor& ids) = nullptr;
  // Of a whole model that chooses between classes: [samples, classes] fp32, without graph. Null where none does. All
  // tensor and context ranks call it alike and have the same.
  at::Tensor (*class_logits)(const pipeline::Stage& stage, const tensor::Batch& batch) = nullptr;
  const Probe* probe = nullptr;  // null where the family's models come from nowhere else
};

// For programs that bring a family of their own: tests do. `runtime` outlives the program; its name must be new.
void add_runtime(const FamilyRuntime& runtime);

// Of a run's family. CHECKs that the registry has it: it lists what families/registry.cpp lists.
const FamilyRuntime& runtime_of(const config::Family& family);

}  // namespace espalier::models
