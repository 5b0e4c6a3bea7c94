#include "engine_generate.h"

#include <ATen/Parallel.h>

#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/format.h"
#include "base/log.h"
#include "base/options.h"
#include "base/progress.h"
#include "base/thread_pool.h"
#include "infer/generate.h"
#include "infer/load_model.h"

namespace espalier {
namespace {

struct GenerateOptions {
  std::string load;
  std::optional<int64_t> ckpt_step, num_threads;
  std::vector<std::string> prompts;
  int64_t tokens_to_generate = 64, top_k = 0, seed = 1234;
  double temperature = 1.0, top_p = 0;
  bool greedy = false, stop_at_eod = true, json = false;
};

void add_options(OptionTable& table, GenerateOptions& options) {
  table.group("model");
  table.add("--load", options.load, "run folder or step folder").required();
  table.add("--ckpt-step", options.ckpt_step, "step of the run folder; the newest complete one unless given");
  table.add("--num-threads", options.num_threads, "threads; the usable cores unless given").minimum(1);
  table.group("text");
  table.add("--prompt", options.prompts, "texts to continue; without it every line of standard input is one");
  table.add("--tokens-to-generate", options.tokens_to_generate, "new tokens for each prompt")
      .minimum(1)
      .alias("--out-seq-length");
  table.add_negative("--no-stop-at-eod", options.stop_at_eod, "go on behind the end-of-document token");
  table.add("--json", options.json, "one JSON object a prompt: prompt, text, prompt_ids, generated_ids, logprobs");
  table.group("sampling");
  table.add("--temperature", options.temperature, "divides the logits").minimum(1e-6).maximum(100);
  table.add("--top-k", options.top_k, "only the so many likeliest tokens; 0 takes all").minimum(0);
  table.add("--top-p", options.top_p, "only the likeliest tokens that together reach this probability; 0 takes all")
      .minimum(0)
      .maximum(1);
  table.add("--greedy", options.greedy, "always the likeliest token");
  table.add("--seed", options.seed, "of the draws; the same seed gives the same texts")
      .minimum(0)
      .alias("--random-seed");
}

std::vector<std::string> lines_of_stdin() {
  std::vector<std::string> lines;
  for (std::string line; std::getline(std::cin, line);)
    if (!line.empty()) lines.push_back(line);
  if (lines.empty())
    throw UserError("no prompt: give --prompt TEXT..., or one text a line on standard input", ExitCode::kUsage);
  return lines;
}

// An empty text starts behind an end of document, as every document but the first of a training sample does.
std::vector<std::vector<int32_t>> encode(const text::Tokenizer& tokenizer, const std::vector<std::string>& prompts) {
  std::vector<std::vector<int32_t>> ids;
  for (const std::string& prompt : prompts) {
    ids.push_back(tokenizer.encode(prompt));
    if (!ids.back().empty()) continue;
    if (!tokenizer.eod())
      throw UserError("an empty prompt needs an end-of-document token to start from, and the tokenizer has none",
                      ExitCode::kUsage);
    ids.back().push_back(*tokenizer.eod());
  }
  return ids;
}

void print(const std::string& prompt, const infer::Generated& result, const text::Tokenizer& tokenizer, bool json) {
  const std::string text = text::decode_continuation(tokenizer, result.prompt_ids, result.generated_ids);
  if (!json) {
    std::printf("%s%s\n", prompt.c_str(), text.c_str());
    return;
  }
  const nlohmann::ordered_json object = {{"prompt", prompt},
                                         {"text", text},
                                         {"prompt_ids", result.prompt_ids},
                                         {"generated_ids", result.generated_ids},
                                         {"logprobs", result.logprobs}};
  std::printf("%s\n", object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
}

}  // namespace

int generate(const std::vector<std::string>& arguments) {
  GenerateOptions options;
  OptionTable table("espalier generate", "Continues texts with a trained model.");
  add_options(table, options);
  if (!table.parse(arguments)) return 0;
  at::set_num_threads(static_cast<int>(options.num_threads.value_or(num_usable_cores())));
  const std::vector<std::string> prompts = options.prompts.empty() ? lines_of_stdin() : options.prompts;
  const infer::LoadedModel loaded = infer::load_model(options.load, options.ckpt_step);
  infer::GenerateConfig config{.tokens_to_generate = options.tokens_to_generate,
                               .sampling = {.temperature = options.temperature,
                                            .top_k = options.greedy ? 1 : options.top_k,
                                            .top_p = options.top_p,
                                            .seed = static_cast<uint64_t>(options.seed)},
                               .stop_ids = {}};
  if (options.stop_at_eod && loaded.tokenizer->eod()) config.stop_ids.push_back(*loaded.tokenizer->eod());
  Progress progress("generate", static_cast<int64_t>(prompts.size()) * options.tokens_to_generate,
                    Progress::Unit::kItems, "tokens");
  const auto results = infer::generate(*loaded.model, loaded.params->compute_type(), encode(*loaded.tokenizer, prompts),
                                       config, [&](size_t, int32_t) { progress.advance(1); });
  progress.finish();
  for (size_t row = 0; row < prompts.size(); ++row) print(prompts[row], results[row], *loaded.tokenizer, options.json);
  return 0;
}

}  // namespace espalier
