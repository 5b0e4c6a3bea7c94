// One kind of model of Hugging Face's transformers, as one of our families reads and writes it: a value in the list of
// the family (convert/formats.h). What files, types and bytes need is the same for all of them (import.h, export.h).
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "convert/model_config.h"
#include "convert/tensor_map.h"
#include "convert/tokenizer_files.h"
#include "store/safetensors.h"
#include "text/tokenizer.h"

namespace espalier::convert {

class ConfigReader;
struct HfCodec;

// A model as its config.json describes it.
struct HfModel {
  const HfCodec* codec = nullptr;
  // vocabulary: both sizes are config.json's vocab_size, the rows of the embedding.
  ModelConfig config;
  std::optional<store::DType> dtype;  // that the weights are declared to have: fp32, fp16 or bf16
  std::vector<std::string>
      notes;  // for people: keys that are not known and are assumed to change nothing, and the like
};

// The tensors of a folder.
struct HfTensors {
  int64_t vocab_rows = 0;  // of their embedding, at most the rows of ours; ours beyond are padding
  const std::set<std::string>* names = nullptr;  // that exist; null: those that an export writes
  bool has(const std::string& name) const { return names != nullptr && names->contains(name); }
};

struct HfCodec {
  const char* model_type = "";  // "llama"
  const config::Family* family = nullptr;

  // Sets family, settings and longest sequence of model.config, whose vocabulary is set; every key that changes what a
  // model computes is covered, or refused by its name. `stored`: the folder's tensors, where config.json alone does not
  // say what the model consists of.
  std::function<void(ConfigReader& reader, const HfTensors& stored, HfModel& model)> read;
  // Why transformers' cannot hold a model of the family, one line for each reason; empty where it can.
  std::function<std::vector<std::string>(const ModelConfig& model)> obstacles;
  // The class in `architectures`, and the keys of the model.
  std::function<std::string(const ModelConfig& model)> architecture;
  std::function<void(const ModelConfig& model, nlohmann::ordered_json& json)> write;
  // Of which elements our tensors (rows: padded_size) and theirs consist. Checked.
  std::function<TensorMap(const ModelConfig& model, const HfTensors& theirs)> map;
  // Tensors that some folders have besides the model's: buffers, heads that it does not have.
  std::function<bool(const std::string& name, const ModelConfig& model)> leaves_out;

  // The tokenizer of the family's data, where the folder's own makes other ids of a text than that; null, or nothing:
  // the folder's own.
  RunTokenizerOf run_tokenizer = {};
  // What a tokenizer.json and tokenizer_config.json that are made for transformers say besides the pieces.
  std::function<void(const text::Tokenizer& tokenizer, const ModelConfig& model, nlohmann::ordered_json& json,
                     nlohmann::ordered_json& config)>
      complete_tokenizer = {};
  bool generates = true;  // generation_config.json, and ids of a text's beginning and end in config.json
};

}  // namespace espalier::convert
