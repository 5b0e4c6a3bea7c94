// The checkpoint that `espalier eval` evaluates: what can be known about it without tensors, and its answers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/options/neighbor_options.h"
#include "config/run_config.h"
#include "eval/prepared_task.h"
#include "text/tokenizer.h"

namespace espalier {

// A temporary folder that is removed with this object.
class EvalFolder {
 public:
  EvalFolder();
  ~EvalFolder();
  EvalFolder(const EvalFolder&) = delete;
  EvalFolder& operator=(const EvalFolder&) = delete;
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

struct EvalModel {
  std::filesystem::path step_folder;
  std::unique_ptr<text::Tokenizer> tokenizer;
  int64_t sequence_length = 0;                   // of its training
  bool has_encoder = false;                      // it reads the context, and its decoder says the continuation
  std::optional<int32_t> prefix;                 // the id that stands for no context
  bool ema = false;                              // ask with the moving average of its weights
  bool int8_weights = false;                     // ask with its layers' matrices in 8 bits
  bool stream_layers = false;                    // ask with layers that are read when they are needed
  NeighborOptions neighbors;                     // of a Retro
  config::Device device = config::Device::kCpu;  // where to ask it
  int64_t tensor_ranks = 1;                      // processes that hold it in parts, of which this is one
};

// `load`: a run folder (its newest complete step, or `step`) or a step folder. A UserError where there is none,
// or none with the moving average that `ema` asks for.
EvalModel open_eval_model(const std::string& load, std::optional<int64_t> step, bool ema);

// Runs the engine on a file of requests with ids (eval/request_file.h), and writes the lines with their answers to
// `answers`. A UserError where the engine has failed, after it has said why.
void ask_model(const EvalModel& model, const std::string& requests, const std::string& answers,
               std::optional<int64_t> num_threads);

// The part of a process that is not the first of `tensor_ranks`: holds its part of the model until the first one's
// engine has answered. As ask_model otherwise.
void help_to_ask_model(const EvalModel& model, std::optional<int64_t> num_threads);

// Lines {"context", "continuation"} of `file`, each of which becomes a line {"loglikelihood", "is_greedy", "tokens"} on
// the standard output; encoded as lm_eval 0.4 does, or each by itself for a model with an encoder, with <extra_id_N> as
// its tokens.
void answer_request_lines(const EvalModel& model, const std::string& file, int64_t sequence_length,
                          std::optional<int64_t> num_threads);

}  // namespace espalier
