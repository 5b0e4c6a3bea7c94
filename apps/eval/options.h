// The options of `espalier eval`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/options/neighbor_options.h"
#include "base/options.h"
#include "config/run_config.h"
#include "eval/results.h"
#include "eval/zero_shot.h"
#include "text/tokenizer.h"

namespace espalier {

struct EvalOptions {
  std::vector<std::string> tasks, data;
  std::string task_set;    // of names that do not say theirs; empty: the one that has the task
  std::string task_files;  // of lm_eval 0.4
  std::optional<int64_t> num_fewshot, max_gen_toks;
  std::optional<int64_t> limit, sequence_length;
  bool list_data = false, json = false, log_samples = false, overwrite = false;
  text::TokenizerOptions tokenizer;
  eval::ZeroShotOptions zero_shot;
  std::string load;  // the run or step to evaluate, if any
  bool ema = false;  // its moving average of the weights
  bool int8_weights = false, stream_layers = false;
  NeighborOptions neighbors;
  bool int8_shift = false;  // with the weights as they are saved too, to say what 8 bits change
  std::optional<int64_t> ckpt_step, num_threads;
  int64_t tensor_ranks = 1;
  config::Device device = config::Device::kCpu;
  std::string requests;  // of this file, and no tasks
  std::string write_requests, read_results, results_path, results_csv;
  std::optional<eval::ResultLayout> layout;  // none: by the tasks
  int64_t bootstrap_iters = 100'000;
};

// "a,b c" -> a b c
std::vector<std::string> task_words(const std::vector<std::string>& words);

// Adds what is wrong to `problems`; false when help was printed.
bool read_eval_options(const std::vector<std::string>& arguments, EvalOptions& options, Problems& problems);

}  // namespace espalier
