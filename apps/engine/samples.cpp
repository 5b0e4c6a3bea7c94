#include "apps/engine/samples.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/growing_file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/progress.h"
#include "data/input_stream.h"
#include "data/line_reader.h"
#include "infer/continue_prompts.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

struct Prompts {
  std::vector<std::string> texts;
  std::vector<std::vector<int32_t>> ids;
};

bool holds_json(const std::string& file) {
  std::string name = file;
  for (const char* ending : {".gz", ".zst", ".xz", ".bz2"})
    if (name.ends_with(ending)) name.resize(name.size() - std::string(ending).size());
  return name.ends_with(".jsonl") || name.ends_with(".json") || name.ends_with(".parquet");
}

// The member "prompt" as RealToxicityPrompts has it or as `espalier generate` writes it, else "text".
std::string prompt_of(std::string_view line, const std::string& place) {
  const Json object = parse_json<Json>(line, place);
  if (object.is_object()) {
    const auto prompt = object.find("prompt");
    const Json& holder = prompt != object.end() && prompt->is_object() ? *prompt : object;
    for (const char* name : {"prompt", "text"})
      if (const auto text = holder.find(name); text != holder.end() && text->is_string())
        return text->get<std::string>();
  }
  throw UserError(concat(place, ": expected an object with a text as prompt.text, prompt or text"), ExitCode::kBadData);
}

Prompts read_prompts(const GenerateOptions& options, const text::Tokenizer& tokenizer) {
  Prompts prompts;
  if (options.input_file.empty()) prompts.texts = {""};
  const bool json = holds_json(options.input_file);
  data::LineReader lines(options.input_file.empty() ? std::vector<std::string>{} : std::vector{options.input_file});
  int64_t number = 0;
  for (std::string_view line; lines.next(line);) {
    ++number;
    while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    prompts.texts.push_back(json ? prompt_of(line, concat(data::shown_name(options.input_file), ":", number))
                                 : std::string(line));
  }
  if (prompts.texts.empty())
    throw UserError(concat(data::shown_name(options.input_file), " has no prompt"), ExitCode::kBadData);
  for (const std::string& text : prompts.texts) prompts.ids.push_back(prompt_ids(tokenizer, text));
  return prompts;
}

std::string hash_of(const std::vector<std::string>& texts) {
  Hasher hasher;
  for (const std::string& text : texts) hasher.update(text.c_str(), text.size() + 1);
  return hex64(hasher.digest());
}

// What the lines follow from.
Json facts_of(const infer::LoadedModel& loaded, const NeighborSource& neighbors, const GenerateOptions& options,
              const Prompts& prompts, int64_t count) {
  Json facts = {{"load", std::filesystem::weakly_canonical(options.load).string()},
                {"step", loaded.step},
                {"ema", options.ema},
                {"int8_weights", options.int8_weights},
                {"prompts", hash_of(prompts.texts)},
                {"samples_per_prompt", options.samples_per_prompt},
                {"num_samples", count},
                {"tokens_to_generate", options.tokens_to_generate},
                {"stop_at_eod", options.stop_at_eod},
                {"temperature", options.temperature},
                {"top_k", options.top_k},
                {"top_p", options.top_p},
                {"greedy", options.is_greedy()},
                {"seed", options.seed}};
  if (neighbors.find) facts["neighbors"] = neighbors.origin;
  return facts;
}

int64_t number_of_texts(const GenerateOptions& options, const Prompts& prompts) {
  if (options.input_file.empty()) return *options.num_samples;
  const int64_t all = static_cast<int64_t>(prompts.texts.size()) * options.samples_per_prompt;
  if (options.num_samples.value_or(all) > all)
    throw UserError(concat("--num-samples ", *options.num_samples, ", but ", options.input_file, " has ",
                           format_counted(static_cast<int64_t>(prompts.texts.size()), "prompt"), " for ",
                           format_counted(all, "text"), ". Give more with --samples-per-prompt."),
                    ExitCode::kUsage);
  return options.num_samples.value_or(all);
}

// The end-of-document token is not part of the text.
std::string line_of(int64_t number, const std::string& prompt, infer::Generated made, const text::Tokenizer& tokenizer,
                    const std::vector<int32_t>& stop_ids) {
  const bool finished =
      !stop_ids.empty() && !made.generated_ids.empty() && made.generated_ids.back() == stop_ids.front();
  if (finished) made.generated_ids.pop_back();
  const std::string text = text::decode_continuation(tokenizer, made.prompt_ids, made.generated_ids);
  const Json line = {
      {"text", text}, {"all_text", prompt + text}, {"prompt", prompt}, {"id", number}, {"finished", finished}};
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::vector<int32_t> prompt_ids(const text::Tokenizer& tokenizer, const std::string& prompt) {
  std::vector<int32_t> ids = tokenizer.encode(prompt);
  if (!ids.empty()) return ids;
  if (!tokenizer.eod())
    throw UserError("an empty prompt needs an end-of-document token to start from, and the tokenizer has none",
                    ExitCode::kUsage);
  return {*tokenizer.eod()};
}

void write_samples(const infer::LoadedModel& loaded, const infer::SamplingConfig& sampling,
                   const NeighborSource& neighbors, const GenerateOptions& options) {
  if (loaded.model == nullptr || loaded.text_ends)
    throw UserError(concat(options.load, " holds a ", loaded.config.family->display,
                           ", but files of texts are made by models that continue text; give its texts to --prompt"),
                    ExitCode::kUsage);
  const Prompts prompts = read_prompts(options, *loaded.tokenizer);
  const int64_t count = number_of_texts(options, prompts);
  const std::string output = options.genfile.empty() ? options.output_file : options.genfile;
  GrowingFile file(output, facts_of(loaded, neighbors, options, prompts, count), {.overwrite = options.overwrite});

  infer::GenerateConfig config{
      .tokens_to_generate = options.tokens_to_generate, .sampling = sampling, .stop_ids = {}, .begin_id = {}};
  config.find_neighbors = neighbors.find;
  if (const auto stop = loaded.tokenizer->eod(); options.stop_at_eod && stop) config.stop_ids.push_back(*stop);
  Progress progress("generate", count - file.num_kept(), Progress::Unit::kItems, "texts");
  const infer::ManyTexts texts{.prompts = prompts.ids,
                               .texts_of_prompt = options.input_file.empty() ? count : options.samples_per_prompt,
                               .first = file.num_kept(),
                               .end = count,
                               .at_once = options.batch_size};
  int64_t num_tokens = 0;
  infer::continue_many(loaded, texts, config, {}, [&](int64_t number, infer::Generated made) {
    num_tokens += static_cast<int64_t>(made.generated_ids.size());
    const std::string& prompt = prompts.texts[static_cast<size_t>(number / texts.texts_of_prompt)];
    file.write(line_of(number, prompt, std::move(made), *loaded.tokenizer, config.stop_ids));
    progress.advance(1);
    progress.set_note(format_printf("%.0f tokens/s", static_cast<double>(num_tokens) / progress.seconds()));
  });
  file.finish();
  progress.finish(output);
}

}  // namespace espalier
