// manifest.json of a checkpoint: what was saved, where every tensor is, and the checksums to prove it.
//
// A checkpoint is a folder of global tensors (docs/checkpoint-format.md). The manifest is written last, so a folder
// without one was never finished. It guards itself: `checksum` is the XXH3 of the file with those 16 digits as zeros.
// Numbers survive to the bit (doubles are written in the shortest text that reads back).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "store/safetensors.h"

namespace espalier::store {

inline constexpr int64_t kFormatVersion = 1;
inline constexpr int64_t kBlockBytes = int64_t{64} << 20;  // longest block of a tensor
inline constexpr const char* kManifestName = "manifest.json";

// A contiguous range of a tensor's bytes, the unit of writing and of checking.
struct Block {
  int64_t offset = 0;  // bytes, from the start of the tensor
  int64_t bytes = 0;
  uint64_t checksum = 0;  // XXH3, 64 bits
};

struct StoredTensor {
  std::string name;  // global name; optimizer state has ".master", ".exp_avg", ".exp_avg_sq" after the parameter's
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;  // global
  std::string file;            // a safetensors file of the folder
  std::vector<Block> blocks;   // in order, without gaps

  int64_t num_elements() const;
  int64_t num_bytes() const { return num_elements() * size_bytes(dtype); }
};

// A file of the folder. The checksum is of its first `hashed_bytes`: the header of a safetensors file (its tensors
// have checksums of their own), all of any other.
struct StoredFile {
  std::string path;  // within the folder: "weights-00000.safetensors", "tokenizer/vocab.json"
  int64_t bytes = 0;
  int64_t hashed_bytes = 0;
  uint64_t checksum = 0;
};

// What the tensors alone do not say about the model.
struct ModelFacts {
  std::string family;             // "gpt"
  std::string compute_type;       // "bf16", "fp16", "fp32"
  int64_t vocab_size = 0;         // of the tokenizer
  int64_t padded_vocab_size = 0;  // rows of the embedding: fixed when the model was created
  int64_t num_parameters = 0;

  template <class Self, class Visit>
  static void visit_fields(Self& self, Visit&& visit) {
    visit("family", self.family);
    visit("compute_type", self.compute_type);
    visit("vocab_size", self.vocab_size);
    visit("padded_vocab_size", self.padded_vocab_size);
    visit("num_parameters", self.num_parameters);
  }
};

// Where a run stands. Everything that decides the next step and is neither a tensor nor an option is here.
//
// A field is added by one member and one line of visit_fields, and by its name in may_be_missing() (manifest.cpp), so
// that older checkpoints leave it at its default.
struct TrainingState {
  int64_t step = 0;  // optimizer steps tried, skipped ones included (Megatron's iteration)
  int64_t consumed_train_samples = 0;
  int64_t consumed_train_tokens = 0;
  int64_t consumed_valid_samples = 0;
  // Learning-rate schedule: position in samples, tokens seen, and tokens at the end of warm-up (--lr-decay-tokens).
  int64_t scheduler_samples = 0;
  int64_t scheduler_tokens = 0;
  int64_t scheduler_warmup_tokens = 0;
  int64_t optimizer_steps = 0;  // steps that changed the weights: Adam's bias correction
  // Of optimizers that average (schedule-free ones): the largest learning rate so far, and the sum of its squares.
  double mean_largest_lr = 0, mean_weight = 0;
  int64_t skipped_steps = 0;  // of the whole run, by overflow or statistics
  int64_t nan_steps = 0;
  std::string step_statistics;  // of --skip-step-sigma: train::StepStatistics::state()
  // Loss scaler of fp16; scale 1 elsewhere.
  double loss_scale = 1;
  int64_t loss_scale_growth_tracker = 0;
  int64_t loss_scale_hysteresis_tracker = 0;
  // What the bits depend on besides all this.
  int64_t random_scheme = 0;  // tensor::kRandomScheme
  std::string sample_order;   // fingerprint of the order of samples; a change is found even when no option differs
  // What evaluations read: [{"set": name, "order": text as above}], in JSON.
  std::string evaluation_data;
  std::string layout;  // "tp1pp1dp1"
  int64_t num_threads = 0;
  std::string cpu_type;
  std::string libtorch_version;
  std::string transport;        // by what ranks exchange, which decides the order of sums: "shared memory", "Gloo"
  std::string instruction_set;  // of the kernels, and libtorch's: "amx; libtorch AVX512"

  template <class Self, class Visit>
  static void visit_fields(Self& self, Visit&& visit) {
    visit("step", self.step);
    visit("consumed_train_samples", self.consumed_train_samples);
    visit("consumed_train_tokens", self.consumed_train_tokens);
    visit("consumed_valid_samples", self.consumed_valid_samples);
    visit("scheduler_samples", self.scheduler_samples);
    visit("scheduler_tokens", self.scheduler_tokens);
    visit("scheduler_warmup_tokens", self.scheduler_warmup_tokens);
    visit("optimizer_steps", self.optimizer_steps);
    visit("mean_largest_lr", self.mean_largest_lr);
    visit("mean_weight", self.mean_weight);
    visit("skipped_steps", self.skipped_steps);
    visit("nan_steps", self.nan_steps);
    visit("step_statistics", self.step_statistics);
    visit("loss_scale", self.loss_scale);
    visit("loss_scale_growth_tracker", self.loss_scale_growth_tracker);
    visit("loss_scale_hysteresis_tracker", self.loss_scale_hysteresis_tracker);
    visit("random_scheme", self.random_scheme);
    visit("sample_order", self.sample_order);
    visit("evaluation_data", self.evaluation_data);
    visit("layout", self.layout);
    visit("num_threads", self.num_threads);
    visit("cpu_type", self.cpu_type);
    visit("libtorch_version", self.libtorch_version);
    visit("transport", self.transport);
    visit("instruction_set", self.instruction_set);
  }
};

struct Manifest {
  int64_t version = kFormatVersion;
  ModelFacts model;
  TrainingState state;
  std::string config;  // resolved configuration, TOML
  std::vector<StoredFile> files;
  std::vector<StoredTensor> tensors;

  const StoredTensor* find(const std::string& name) const;
  const StoredFile* find_file(const std::string& path) const;
  int64_t tensor_bytes() const;
};

std::string to_json(const Manifest& manifest);

// `origin` is the file's name for messages. Throws UserError (kBadData) with the field, the expected and the found
// value on anything that is not a whole manifest of a version this program knows.
Manifest manifest_from_json(const std::string& text, const std::string& origin);
Manifest read_manifest(const std::filesystem::path& step_folder);

// Names of the files of a group (spec::Depth::name): "weights-00000.safetensors", "optimizer-embedding.safetensors".
std::string weights_file(const std::string& group);
std::string optimizer_file(const std::string& group);
// "BF16 [33, 7]"
std::string describe(DType dtype, const std::vector<int64_t>& shape);
inline std::string describe(const StoredTensor& tensor) { return describe(tensor.dtype, tensor.shape); }
// False for optimizer state.
bool is_weight(const StoredTensor& tensor);

// What the moving average of a weight (train --ema) is called; it is optimizer state, fp32.
std::string ema_of(const std::string& weight);
// UserError where there is none: `option` has asked for it.
void check_has_ema(const Manifest& manifest, const std::string& option);

}  // namespace espalier::store
