// The options of `espalier generate`, which espalier checks before it becomes the engine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/options.h"

namespace espalier {

struct GenerateOptions {
  std::string load;
  std::optional<int64_t> ckpt_step, num_threads;
  std::vector<std::string> prompts;
  int64_t tokens_to_generate = 64, top_k = 0, seed = 1234;
  double temperature = 1.0, top_p = 0;
  bool greedy = false, stop_at_eod = true, json = false;
  bool ema = false;  // the moving average of the weights

  // Temperature 0 is the limit in which the most likely token has all the probability.
  bool is_greedy() const { return greedy || temperature == 0; }
};

// Throws a UserError with every problem; false when help was printed.
bool read_generate_options(const std::vector<std::string>& arguments, GenerateOptions& options);

}  // namespace espalier
