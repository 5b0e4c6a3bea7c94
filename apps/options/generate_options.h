// The options of `espalier generate`, which espalier checks before it becomes the engine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/options/neighbor_options.h"
#include "base/options.h"
#include "config/run_config.h"

namespace espalier {

struct GenerateOptions {
  std::string load;
  std::optional<int64_t> ckpt_step, num_threads;
  std::vector<std::string> prompts;
  int64_t tokens_to_generate = 64, top_k = 0, seed = 1234, tensor_ranks = 1;
  double temperature = 1.0, top_p = 0;
  bool greedy = false, stop_at_eod = true, json = false;
  config::Device device = config::Device::kCpu;
  bool int8_weights = false, stream_layers = false;
  bool ema = false;  // the moving average of the weights
  NeighborOptions neighbors;

  // Many texts, into a file.
  std::string input_file, output_file, genfile;
  std::optional<int64_t> num_samples;
  int64_t samples_per_prompt = 1, batch_size = 64;
  bool overwrite = false;
  bool writes_file() const { return !input_file.empty() || !genfile.empty(); }

  // Temperature 0 is the limit in which the likeliest token has all the probability.
  bool is_greedy() const { return greedy || temperature == 0; }
};

// Of generate, serve and eval.
void add_tensor_ranks(OptionTable& table, int64_t& tensor_ranks);

void add_generate_rows(OptionTable& table, GenerateOptions& options);

// Throws a UserError with every problem; false when help was printed.
bool read_generate_options(const std::vector<std::string>& arguments, GenerateOptions& options);

}  // namespace espalier
