// espalier data sample gpt: running text, with prefixes or without, and packed pairs.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>

#include "apps/data/commands.h"
#include "apps/data/sample_options.h"
#include "apps/tokenizer/options.h"
#include "base/format.h"
#include "base/log.h"
#include "base/options.h"
#include "data/decoder_masks.h"
#include "data/gpt_dataset.h"
#include "data/packed_dataset.h"
#include "families/gpt/config.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;
using Ids = std::vector<int64_t>;
using Kind = data::Objective::Kind;

struct GptRequest {
  ShownSamples shown;
  data::RowRules rules;
  std::vector<std::string> length_stages;

  bool is_multitask() const { return rules.objective.kind == Kind::kMultitask; }
  bool shows_masks() const {
    const data::TextMaskOptions& text = rules.text;
    return rules.objective.kind != Kind::kCausal || text.reset_position_ids || text.reset_attention_mask ||
           text.eod_mask_loss || is_best_fit() || !length_stages.empty();
  }
  bool is_best_fit() const { return shown.data.packing == data::Packing::kBestFit; }
};

void add_stage_rows(OptionTable& table, GptRequest& request) {
  data::DataSetOptions& data = request.shown.data;
  table
      .add("--data-stages", data.data_stages,
           "\"START samples: WEIGHT PREFIX, ...\" or tokens each: what the training set is mixed from afterwards")
      .value_name("START: BLEND");
  table.add_choice("--packing", data.packing, {{"none", data::Packing::kNone}, {"best-fit", data::Packing::kBestFit}},
                   "best-fit: documents that fit into a sample stay whole");
  table.add_choice("--sample-order", data.sample_order,
                   {{"megatron", data::OrderKind::kMegatron}, {"implicit", data::OrderKind::kImplicit}},
                   "implicit: a keyed permutation, for which nothing is built");
  table
      .add("--seq-length-stages", request.length_stages,
           "\"START samples: LENGTH\" or tokens each: samples hold sequences of that length")
      .value_name("START: LENGTH");
}

// What is wrong with the stages of lengths; the others are data::plan_data()'s.
void resolve_lengths(GptRequest& request, Problems& problems) {
  for (const std::string& text : request.length_stages) {
    try {
      const auto [start, length] = data::parse_length_stage(text);
      const int64_t first = data::first_sample_of(start, request.shown.data.sequence_length);
      request.rules.lengths.push_back({first, length});
    } catch (const UserError& error) {
      problems.add("--seq-length-stages: ", error.what());
    }
  }
  const bool is_causal = request.rules.objective.kind == Kind::kCausal;
  if (!is_causal && (request.is_best_fit() || !request.length_stages.empty()))
    problems.add("--packing best-fit and --seq-length-stages are for --objective causal");
  if (request.is_multitask() && !request.shown.data.data_stages.empty())
    problems.add("--data-stages is for running text; --objective multitask reads pairs");
}

void add_gpt_rows(OptionTable& table, GptRequest& request) {
  table.group("what is learnt");
  families::add_objective_rows(table, request.rules.objective);
  data::TextMaskOptions& text = request.rules.text;
  table.add("--reset-position-ids", text.reset_position_ids, "positions restart at each document");
  table.add("--reset-attention-mask", text.reset_attention_mask, "attention does not cross documents");
  table.add("--eod-mask-loss", text.eod_mask_loss, "no loss where the input is the end of a document");
}

void add_masks(Json& object, const data::Sample& sample, const GptRequest& request, int64_t number) {
  data::RowMasks masks = data::row_masks(sample, number, request.rules);
  const size_t length = masks.positions.size();
  if (masks.first_keys.empty()) masks.first_keys.assign(length, 0);
  if (masks.last_keys.empty()) {
    masks.last_keys.resize(length);
    std::iota(masks.last_keys.begin(), masks.last_keys.end(), 0);
  }
  if (request.is_multitask()) {
    object["segments"] = sample.arrays[data::PackedDataset::kSegments];
    object["is_input"] = sample.arrays[data::PackedDataset::kIsInput];
  }
  if (request.is_best_fit()) object["segments"] = sample.arrays[data::GptDataset::kSegments];
  if (request.rules.objective.kind == Kind::kPrefix) {
    object["prefixes"] = Json::array();
    for (const data::TextPrefix& prefix : masks.prefixes) object["prefixes"].push_back({prefix.begin, prefix.end});
  }
  object["positions"] = masks.positions;
  object["first_keys"] = masks.first_keys;
  object["last_keys"] = masks.last_keys;
  object["loss_mask"] = masks.loss_mask;
  object["num_targets"] = masks.num_targets;
}

// Ids begin to end - 1.
std::string decode(const text::Tokenizer& tokenizer, const Ids& ids, size_t begin, size_t end) {
  return tokenizer.decode(std::vector<int32_t>(ids.begin() + static_cast<std::ptrdiff_t>(begin),
                                               ids.begin() + static_cast<std::ptrdiff_t>(end)));
}

std::string text_of_pairs(const text::Tokenizer& tokenizer, const data::Sample& sample) {
  const Ids& ids = sample.arrays[data::PackedDataset::kIds];
  const Ids& segments = sample.arrays[data::PackedDataset::kSegments];
  const Ids& is_input = sample.arrays[data::PackedDataset::kIsInput];
  std::string text;
  for (size_t begin = 0, end = 0; begin < ids.size() && segments[begin] != 0; begin = end) {
    size_t target = begin;
    for (end = begin; end < ids.size() && segments[end] == segments[begin]; ++end)
      if (is_input[end] != 0) target = end + 1;
    text += concat(begin == 0 ? "" : "\n", "--- input: ", decode(tokenizer, ids, begin, target),
                   "\n--- target: ", decode(tokenizer, ids, target, end));
  }
  return text;
}

// Each document, or piece of one; not the padding.
std::string text_of_documents(const text::Tokenizer& tokenizer, const Ids& ids, const Ids& segments) {
  std::string text;
  for (size_t begin = 0, end = 0; begin < ids.size() && segments[begin] != 0; begin = end) {
    while (end < ids.size() && segments[end] == segments[begin]) ++end;
    text += concat(begin == 0 ? "" : "\n", "--- document: ", decode(tokenizer, ids, begin, end));
  }
  return text;
}

std::string text_of_prefixes(const text::Tokenizer& tokenizer, const Ids& ids, const data::RowMasks& masks) {
  std::string text;
  for (size_t at = 0; at < masks.prefixes.size(); ++at) {
    const auto begin = static_cast<size_t>(masks.prefixes[at].begin), end = static_cast<size_t>(masks.prefixes[at].end);
    const bool is_last = at + 1 == masks.prefixes.size();
    const size_t next = is_last ? ids.size() : static_cast<size_t>(masks.prefixes[at + 1].begin);
    text += concat(at == 0 ? "" : "\n", "--- prefix: ", decode(tokenizer, ids, begin, end),
                   "\n--- what follows: ", decode(tokenizer, ids, end, next));
  }
  return text;
}

std::string as_text(const data::Sample& sample, const GptRequest& request, int64_t number,
                    const text::Tokenizer& tokenizer) {
  const Ids& ids = sample.arrays[0];
  if (request.is_multitask()) return text_of_pairs(tokenizer, sample);
  if (request.rules.objective.kind == Kind::kPrefix)
    return text_of_prefixes(tokenizer, ids, data::row_masks(sample, number, request.rules));
  if (request.is_best_fit()) return text_of_documents(tokenizer, ids, sample.arrays[data::GptDataset::kSegments]);
  return decode(tokenizer, ids, 0, ids.size());
}

void print(const data::SampleSource& dataset, const GptRequest& request, const text::Tokenizer* tokenizer) {
  const ShownSamples& shown = request.shown;
  check_shown(shown, dataset.name(), dataset.size());
  const bool is_blend = dataset.source_names().size() > 1;
  data::Sample sample;
  for (int64_t number = shown.first; number < shown.first + shown.count; ++number) {
    dataset.read(number, sample);
    const std::string& source = dataset.source_names()[static_cast<size_t>(sample.source)];
    std::string line;
    if (shown.json) {
      Json object{{"sample", number}, {"ids", sample.arrays[0]}};
      if (request.shows_masks()) add_masks(object, sample, request, number);
      if (is_blend) object["source"] = source;
      line = object.dump(-1, ' ', false, Json::error_handler_t::replace);
    } else {
      line = concat("=== sample ", number, " of ", dataset.name(), is_blend ? ", from " + source : "", " ===\n",
                    as_text(sample, request, number, *tokenizer));
    }
    line += '\n';
    std::fwrite(line.data(), 1, line.size(), stdout);
  }
}

std::unique_ptr<text::Tokenizer> tokenizer_of(GptRequest& request, Problems& problems) {
  const ShownSamples& shown = request.shown;
  const data::TextMaskOptions& text = request.rules.text;
  if (!shown.tokenizer.type.empty() && (!shown.json || request.shows_masks()))
    return load_tokenizer(shown.tokenizer, problems);
  if (!shown.json)
    problems.add("samples are shown as text: give --tokenizer-type and its files, or --json for ids");
  else if (request.is_multitask() || text.reset_position_ids || text.reset_attention_mask || text.eod_mask_loss)
    problems.add(
        "the ids that fill rows up and end documents are the tokenizer's: give --tokenizer-type and its files");
  return nullptr;
}

template <class DataSets>
void show(const DataSets& sets, const GptRequest& request, const text::Tokenizer* tokenizer) {
  const auto& dataset = chosen_set(sets, request.shown);
  log_info(dataset.description());
  print(dataset, request, tokenizer);
}

}  // namespace

int data_sample_gpt_main(const std::vector<std::string>& arguments) {
  GptRequest request;
  ShownSamples& shown = request.shown;
  OptionTable table("espalier data sample",
                    "Shows samples as training will read them: data sample [gpt], bert, t5 or ict.");
  add_data_rows(table, shown, "tokens of a sample; it has one id more");
  add_stage_rows(table, request);
  add_gpt_rows(table, request);
  add_shown_rows(table, shown,
                 "one JSON object a sample: sample, ids and, in a blend, source; unless plainly causal also what each "
                 "token sees and the weight of its label");
  table.group("tokenizer (for text)");
  add_tokenizer_options(table, shown.tokenizer);
  table.known_elsewhere({"--index", "--sample", "--number", "--offset"}, "--first");
  table.stray_words_mean("--data-path");
  Problems problems;
  if (!table.parse(arguments, problems)) return 0;
  parse_num_samples(shown, problems);
  families::check_objective_rows(table, request.rules.objective, problems);
  const std::unique_ptr<text::Tokenizer> tokenizer = tokenizer_of(request, problems);
  if (tokenizer) request.rules.text = data::TextMaskOptions::make(request.rules.text, *tokenizer, problems);
  request.rules.seed = shown.data.seed;
  request.rules.packing = shown.data.packing;
  resolve_lengths(request, problems);
  if (tokenizer) shown.data.pad_id = data::pad_id(*tokenizer);
  shown.data.endings = request.rules.objective.token_file_endings();
  if (table.find("--data-path")->unclear()) problems.raise();  // a word was perhaps meant for it
  const data::DataPlan plan = data::plan_data(shown.data, problems);
  if (request.is_multitask() && shown.data.sequence_length > 0)
    data::check_pairs(plan, shown.data.sequence_length, problems);
  problems.raise();

  if (request.is_multitask())
    show(data::PackedDataSets::open(shown.data, data::pad_id(*tokenizer)), request, tokenizer.get());
  else
    show(data::GptDataSets::open(shown.data), request, tokenizer.get());
  return 0;
}

}  // namespace espalier
