#include "data/data_stages.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "base/literal.h"

namespace espalier::data {
namespace {

constexpr const char* kForm = "\"START: WEIGHT PREFIX, WEIGHT PREFIX\", or WEIGHT a:b PREFIX";

constexpr int64_t kMostSteps = 10'000'000'000, kMostTokens = 1'000'000'000'000'000'000;

DataSource parse_source(const std::string& text) {
  const std::vector<std::string> words = split_blanks(text);
  if (words.empty() || words.size() > 3)
    throw UserError(concat("'", strip(text), "' has ", words.size(), " words. The form is ", kForm, "."),
                    ExitCode::kUsage);
  DataSource source;
  source.prefix = words.back();
  if (words.size() > 1) source.weight = parse_weight(words[0], concat("before '", source.prefix, "'"));
  if (words.size() > 2) source.range = parse_fraction_range(words[1]);
  return source;
}

}  // namespace

double parse_weight(const std::string& word, const std::string& what) {
  const double weight = parse_number(word, what);
  if (weight <= 0)
    throw UserError(concat(what, ": weight ", word, " is not above 0. Leave out a data set that should not be read."),
                    ExitCode::kUsage);
  return weight;
}

StageStart parse_stage_start(const std::string& text) {
  const std::vector<std::string> words = split_blanks(text);
  const std::string unit = words.size() == 2 ? words[1] : "steps";
  const bool counts_steps = unit == "steps" || unit == "iterations";
  const int64_t amount = words.empty() || words.size() > 2 ? -1 : parse_python_int(words[0]).value_or(-1);
  if (amount >= 0 && amount <= (counts_steps ? kMostSteps : kMostTokens)) {
    if (counts_steps) return {amount, StageUnit::kSteps};
    if (unit == "samples") return {amount, StageUnit::kSamples};
    if (unit == "tokens") return {amount, StageUnit::kTokens};
  }
  throw UserError(
      concat("'", strip(text), "' does not say where a stage begins: expected a number of steps, or a number and ",
             "steps, iterations, samples or tokens, as in 2_000_000 samples"),
      ExitCode::kUsage);
}

std::pair<StageStart, std::string> split_stage(const std::string& text, const std::string& form) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos)
    throw UserError(concat("'", text, "' does not say where the stage begins. The form is ", form, "."),
                    ExitCode::kUsage);
  return {parse_stage_start(text.substr(0, colon)), text.substr(colon + 1)};
}

DataStage parse_data_stage(const std::string& text) {
  const auto [start, blend] = split_stage(text, kForm);
  DataStage stage{start, {}};
  for (const std::string& piece : split(blend, ',')) stage.sources.push_back(parse_source(piece));
  if (stage.sources.size() == 1) return stage;
  for (const std::string& piece : split(blend, ','))
    if (split_blanks(piece).size() == 1)
      throw UserError(concat("'", strip(piece), "' has no weight, and the stage has ", stage.sources.size(),
                             " data sets. The form is ", kForm, "."),
                      ExitCode::kUsage);
  return stage;
}

std::pair<StageStart, int64_t> parse_length_stage(const std::string& text) {
  const auto [start, words] = split_stage(text, "\"START: LENGTH\"");
  const std::optional<int64_t> length = parse_python_int(strip(words));
  if (!length || *length < 1)
    throw UserError(concat("'", strip(words), "' is not a sequence length: expected a number of tokens, 1 or more"),
                    ExitCode::kUsage);
  return {start, *length};
}

LengthStage length_at(const std::vector<LengthStage>& stages, int64_t sample, int64_t full) {
  const auto after =
      std::upper_bound(stages.begin(), stages.end(), sample,
                       [](int64_t wanted, const LengthStage& stage) { return wanted < stage.first_sample; });
  return after == stages.begin() ? LengthStage{0, full} : *std::prev(after);
}

int64_t first_sample_of(const StageStart& start, int64_t sequence_length) {
  if (start.unit == StageUnit::kSteps)
    throw UserError(concat("a stage that begins after ", start.amount,
                           " steps: how many samples they read is not known here. Give it in samples or tokens."),
                    ExitCode::kUsage);
  if (start.unit == StageUnit::kSamples || sequence_length <= 0) return start.amount;
  return start.amount / sequence_length + (start.amount % sequence_length != 0);
}

}  // namespace espalier::data
