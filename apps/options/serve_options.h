// The options of `espalier serve`, which espalier checks before it becomes the engine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/options/index_options.h"
#include "config/run_config.h"

namespace espalier {

// Passages to search in, where an index is named.
struct PassageOptions {
  std::string index, evidence;
  EncoderOptions encoder;
  retrieval::SearchPlan search;
  ProbeOptions probes;
};

struct ServeOptions {
  std::string load, host = "127.0.0.1", api_key_file, chat_template, served_model_name;
  std::string beside;  // a second model, which the playground shows next to the first
  std::optional<int64_t> ckpt_step, beside_step, num_threads, max_context, max_prompt_tokens;
  int64_t port = 5000, max_running = 16, max_waiting = 1024, max_body_megabytes = 4, max_connections = 4096;
  int64_t request_seconds = 600, kv_cache_megabytes = 2048, tensor_ranks = 1;
  config::Device device = config::Device::kCpu;
  bool int8_weights = false, stream_layers = false;
  bool ema = false;                // the moving average of the weights
  bool without_neighbors = false;  // a Retro as the GPT with its weights

  std::string api_key, chat_template_text;  // of the files

  PassageOptions passages;
};

// Throws a UserError with every problem; false when help was printed.
bool read_serve_options(const std::vector<std::string>& arguments, ServeOptions& options);

}  // namespace espalier
