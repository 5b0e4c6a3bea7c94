// What one step of training came to: the source of the log line, of metrics.jsonl and of TensorBoard.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace espalier::report {

struct NamedLoss {
  std::string name;  // "lm loss"
  double value = 0;
  bool is_measure = false;  // no loss, but how well the model does: an accuracy in percent
  // Mean loss of the tokens of each data set of the blend that occurred in the step.
  struct BySource {
    std::string source;
    double value = 0;
    double num_tokens = 0;
  };
  std::vector<BySource> by_source;
  // Of an evaluation of a model of text: the sum of the losses in bits over the UTF-8 bytes of what they predict.
  // Special ids do not count. The one loss that compares models of different vocabularies.
  std::optional<double> bits_per_byte = std::nullopt;
};

// Of a GPU, in bytes, as its allocator counts; peaks since the start.
struct GpuMemory {
  int64_t allocated = 0, peak_allocated = 0, reserved = 0, peak_reserved = 0;
};

struct StepReport {
  int64_t step = 0, num_steps = 0;  // 1 for the first
  int64_t consumed_samples = 0, consumed_tokens = 0;
  int64_t global_batch_size = 0;
  int64_t sequence_length = 0;               // of a sample
  std::optional<int64_t> curriculum_length;  // of its sequences, in a run whose lengths come in stages
  int64_t num_ranks = 1, num_replicas = 1;   // of the run; replicas along the data axis
  double step_seconds = 0;
  double learning_rate = 0;            // of this step
  double next_learning_rate = 0;       // after the scheduler's step: what Megatron's line prints
  std::string lr_phase;                // in which learning_rate is: plan::LrSchedule::phase()
  std::optional<double> weight_decay;  // where it changes with the steps
  std::vector<NamedLoss> losses;
  std::optional<double> loss_scale;  // fp16 only
  std::optional<double> grad_norm, params_norm;
  std::optional<double> max_attention_logit;  // with --qk-clip
  std::optional<int64_t> num_zeros;
  bool skipped = false, nan = false;
  std::string objection;                // why it was skipped, where statistics did it (--skip-step-sigma)
  uint64_t sample_hash = 0;             // of sample numbers and ids
  double model_flops = 0;               // of all ranks: 3x2 per multiply-add, causal attention once
  double hardware_flops = 0;            // of all ranks, as BLOOM's log counts them
  std::optional<GpuMemory> gpu_memory;  // of the first rank's, when the step was over
};

}  // namespace espalier::report
