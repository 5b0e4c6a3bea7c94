#include "apps/engine/generate.h"

#include <ATen/Parallel.h>

#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/engine/neighbors.h"
#include "apps/engine/ranks.h"
#include "apps/engine/samples.h"
#include "apps/options/generate_options.h"
#include "apps/print_json.h"
#include "base/format.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/whereabouts.h"
#include "data/sentence_vocabulary.h"
#include "infer/continue_prompts.h"
#include "infer/fill_masks.h"
#include "infer/generate.h"
#include "infer/load_model.h"

namespace espalier {
namespace {

std::vector<std::string> lines_of_stdin() {
  const WaitsFor waits(Waiting::kOthers, "read", "standard input");
  std::vector<std::string> lines;
  for (std::string line; std::getline(std::cin, line);)
    if (!line.empty()) lines.push_back(line);
  if (lines.empty())
    throw UserError("no prompt: give --prompt TEXT..., or one text a line on standard input", ExitCode::kUsage);
  return lines;
}

// For a model with an encoder the words <extra_id_N> are the tokens that stand for what it is to fill in.
std::vector<std::vector<int32_t>> encode(const text::Tokenizer& tokenizer, const std::vector<std::string>& prompts,
                                         bool has_encoder) {
  std::vector<std::vector<int32_t>> ids;
  for (const std::string& prompt : prompts) {
    ids.push_back(has_encoder ? data::encode_with_sentinels(tokenizer, prompt) : prompt_ids(tokenizer, prompt));
    if (ids.back().empty()) throw UserError("an empty prompt: an encoder needs at least one token", ExitCode::kUsage);
  }
  return ids;
}

// What a decoder answers to what an encoder has read, with the tokens that say what is filled in.
std::string answer_of(const infer::Generated& result, const text::Tokenizer& tokenizer, const models::TextEnds& ends) {
  std::vector<int32_t> ids = result.generated_ids;
  if (!ids.empty() && ids.back() == ends.end) ids.pop_back();
  return tokenizer.decode(ids);
}

void print_object(const std::string& prompt, const std::string& text, const infer::Generated& result) {
  nlohmann::ordered_json object = {{"prompt", prompt},
                                   {"text", text},
                                   {"prompt_ids", result.prompt_ids},
                                   {"generated_ids", result.generated_ids},
                                   {"logprobs", result.logprobs}};
  if (!result.neighbors.empty()) object["neighbors"] = result.neighbors;
  print_json(object);
}

void print(const std::string& prompt, const infer::Generated& result, const infer::LoadedModel& loaded, bool json) {
  const bool answers = loaded.text_ends.has_value();
  const std::string text = answers
                               ? answer_of(result, *loaded.tokenizer, *loaded.text_ends)
                               : text::decode_continuation(*loaded.tokenizer, result.prompt_ids, result.generated_ids);
  if (json)
    print_object(prompt, text, result);
  else
    std::printf("%s%s\n", answers ? "" : prompt.c_str(), text.c_str());
}

void continue_texts(const infer::LoadedModel& loaded, const std::vector<std::string>& prompts,
                    const infer::SamplingConfig& sampling, const infer::FindNeighbors& find_neighbors,
                    const GenerateOptions& options) {
  infer::GenerateConfig config{
      .tokens_to_generate = options.tokens_to_generate, .sampling = sampling, .stop_ids = {}, .begin_id = {}};
  config.find_neighbors = find_neighbors;
  if (loaded.text_ends) config.begin_id = loaded.text_ends->begin;
  const std::optional<int32_t> stop = loaded.text_ends ? loaded.text_ends->end : loaded.tokenizer->eod();
  if (options.stop_at_eod && stop) config.stop_ids.push_back(*stop);
  Progress progress("generate", static_cast<int64_t>(prompts.size()) * options.tokens_to_generate,
                    Progress::Unit::kItems, "tokens");
  const auto ids = encode(*loaded.tokenizer, prompts, loaded.text_ends.has_value());
  const auto on_token = [&](size_t, int32_t) { progress.advance(1); };
  const auto results = infer::continue_prompts(loaded, ids, config, on_token);
  progress.finish();
  for (size_t row = 0; row < prompts.size(); ++row) print(prompts[row], results[row], loaded, options.json);
}

void fill_in(const infer::LoadedModel& loaded, const std::vector<std::string>& prompts,
             const infer::SamplingConfig& sampling, bool json) {
  const std::vector<infer::FilledMasks> filled = infer::fill_masks(loaded, prompts, sampling);
  for (size_t row = 0; row < prompts.size(); ++row)
    if (json)
      print_object(prompts[row], filled[row].text, filled[row].tokens);
    else
      std::printf("%s\n", filled[row].text.c_str());
}

}  // namespace

int generate(const std::vector<std::string>& arguments) {
  GenerateOptions options;
  if (!read_generate_options(arguments, options)) return 0;
  EngineRanks ranks("generate",
                    {.size = options.tensor_ranks, .device = options.device, .num_threads = options.num_threads});
  infer::LoadedModel loaded = infer::load_model(
      options.load, options.ckpt_step, options.ema ? infer::WeightSet::kEma : infer::WeightSet::kWeights,
      infer::weight_format(options.int8_weights, options.stream_layers), ranks.grid());
  const NeighborSource neighbors = neighbor_source(loaded, options.neighbors, options.load, at::get_num_threads());
  if (neighbors.find) ranks.check_alone("a model that reads neighbours, unless with --retro-without-neighbors,");
  if (!ranks.lead(loaded)) return 0;
  const std::vector<std::string> prompts =
      !options.prompts.empty() || options.writes_file() ? options.prompts : lines_of_stdin();
  const infer::SamplingConfig sampling{.temperature = options.is_greedy() ? 1 : options.temperature,
                                       .top_k = options.is_greedy() ? 1 : options.top_k,
                                       .top_p = options.top_p,
                                       .seed = static_cast<uint64_t>(options.seed)};
  if (options.writes_file())
    write_samples(loaded, sampling, neighbors, options);
  else if (loaded.model != nullptr)
    continue_texts(loaded, prompts, sampling, neighbors.find, options);
  else
    fill_in(loaded, prompts, sampling, options.json);
  return 0;
}

}  // namespace espalier
