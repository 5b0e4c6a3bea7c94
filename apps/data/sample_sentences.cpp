// espalier data sample bert, espalier data sample t5: samples that are made of sentences.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/data/sample_options.h"
#include "apps/tokenizer/options.h"
#include "base/format.h"
#include "base/log.h"
#include "data/sentence_dataset.h"
#include "families/sentence_options.h"

namespace espalier {
namespace {

using data::SentenceModel;
using Json = nlohmann::ordered_json;

struct SentenceRequest {
  ShownSamples shown;
  data::SentenceSampleOptions samples;
  bool mapping = false;
};

void add_model_rows(OptionTable& table, SentenceRequest& request) {
  data::SentenceSampleOptions& samples = request.samples;
  table.group("masking");
  families::add_masking_rows(table, samples.model, samples.mask_probability, samples.short_probability);
  if (samples.model == SentenceModel::kT5)
    families::add_decoder_length_row(table, samples.decoder_sequence_length);
  else
    families::add_binary_head_row(table, samples.binary_head);
}

void write_line(std::string line) {
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), stdout);
}

void print_row(const data::SentenceDataset& dataset, int64_t number, bool json) {
  const data::BlendIndex::Place place = dataset.place(number);
  const data::SentenceMap::Row row = dataset.parts()[static_cast<size_t>(place.set)].map[place.sample];
  std::vector<int64_t> values = {row.begin, row.end, row.target};
  if (dataset.source_names().size() > 1) values.push_back(place.set);
  if (json) return write_line(Json(values).dump());
  std::string text;
  for (const int64_t value : values) text += concat(text.empty() ? "" : " ", value);
  write_line(text);
}

Json to_json(const data::SentenceDataset& dataset, const data::Sample& sample) {
  Json object;
  for (size_t at = 0; at < dataset.fields().size(); ++at) {
    const data::SampleField& field = dataset.fields()[at];
    object[field.name] = field.shape.empty() ? Json(sample.arrays[at][0]) : Json(sample.arrays[at]);
  }
  if (dataset.source_names().size() > 1) object["source"] = dataset.source_names()[static_cast<size_t>(sample.source)];
  return object;
}

// The ids of an array as text; those below 0 (no label) and, with `mask`, where that is 0 are left out.
std::string decoded(const text::Tokenizer& tokenizer, const std::vector<int64_t>& ids,
                    const std::vector<int64_t>* mask) {
  std::vector<int32_t> kept;
  for (size_t at = 0; at < ids.size(); ++at)
    if (ids[at] >= 0 && (mask == nullptr || (*mask)[at] != 0)) kept.push_back(static_cast<int32_t>(ids[at]));
  return tokenizer.decode(kept);
}

std::string as_text(const data::SentenceDataset& dataset, const data::Sample& sample, int64_t number,
                    const text::Tokenizer& tokenizer) {
  const auto array = [&](const char* name) -> const std::vector<int64_t>& {
    return sample.arrays[dataset.field(name)];
  };
  std::string text = concat("=== sample ", number, " of ", dataset.name());
  if (dataset.source_names().size() > 1)
    text += concat(", from ", dataset.source_names()[static_cast<size_t>(sample.source)]);
  if (array("truncated")[0] != 0) text += ", truncated";
  if (dataset.options().model == SentenceModel::kBert) {
    if (array("is_random")[0] != 0) text += ", halves swapped";
    return concat(text, " ===\n", decoded(tokenizer, array("text"), &array("padding_mask")),
                  "\n--- to predict: ", decoded(tokenizer, array("labels"), nullptr));
  }
  std::vector<int64_t> encoder = array("text_enc");
  while (!encoder.empty() && encoder.back() == dataset.options().vocabulary.pad) encoder.pop_back();
  return concat(text, " ===\n", decoded(tokenizer, encoder, nullptr),
                "\n--- decoder: ", decoded(tokenizer, array("text_dec"), &array("loss_mask")),
                "\n--- to predict: ", decoded(tokenizer, array("labels"), nullptr));
}

void print(const data::SentenceDataset& dataset, const SentenceRequest& request, const text::Tokenizer* tokenizer) {
  const ShownSamples& shown = request.shown;
  check_shown(shown, dataset.name(), dataset.size());
  data::Sample sample;
  for (int64_t number = shown.first; number < shown.first + shown.count; ++number) {
    if (request.mapping) {
      print_row(dataset, number, shown.json);
      continue;
    }
    dataset.read(number, sample);
    write_line(shown.json ? to_json(dataset, sample).dump(-1, ' ', false, Json::error_handler_t::replace)
                          : as_text(dataset, sample, number, *tokenizer));
  }
}

int sample_main(OptionTable& table, SentenceRequest& request, const std::vector<std::string>& arguments) {
  ShownSamples& shown = request.shown;
  const bool is_t5 = request.samples.model == SentenceModel::kT5;
  Option& seq_length = add_data_rows(table, shown, is_t5 ? "tokens of the encoder" : "tokens of a sample");
  if (is_t5) seq_length.alias("--encoder-seq-length");
  add_model_rows(table, request);
  add_shown_rows(table, shown,
                 is_t5 ? "one JSON object a sample: text_enc, text_dec, labels, loss_mask, truncated"
                       : "one JSON object a sample: text, types, labels, is_random, loss_mask, "
                         "padding_mask, truncated");
  table.add("--mapping", request.mapping,
            "rows of the map instead: first sentence, end, target length and, in a blend, the number of the data set");
  table.group("tokenizer");
  add_tokenizer_options(table, shown.tokenizer);
  Problems problems;
  if (!table.parse(arguments, problems)) return 0;
  parse_num_samples(shown, problems);
  request.samples.sequence_length = shown.data.sequence_length;
  const std::unique_ptr<text::Tokenizer> tokenizer = load_sentence_tokenizer(shown, !request.mapping, problems);
  if (tokenizer)
    request.samples.vocabulary = data::SentenceVocabulary::make(*tokenizer, request.samples.model, problems);
  const data::DataPlan plan = data::plan_data(shown.data, problems);
  if (shown.data.sequence_length > 0) {  // else it is missing, which is reported
    request.samples.check(problems);
    data::check_sentences(plan, request.samples, problems);
  }
  problems.raise();

  const data::SentenceDataSets sets = data::SentenceDataSets::open(shown.data, request.samples);
  const data::SentenceDataset& dataset = chosen_set(sets, shown);
  log_info(dataset.description());
  print(dataset, request, tokenizer.get());
  return 0;
}

}  // namespace

int data_sample_bert_main(const std::vector<std::string>& arguments) {
  SentenceRequest request;
  OptionTable table("espalier data sample bert", "Shows samples of BERT as training will read them.");
  return sample_main(table, request, arguments);
}

int data_sample_t5_main(const std::vector<std::string>& arguments) {
  SentenceRequest request;
  request.samples.model = SentenceModel::kT5;
  OptionTable table("espalier data sample t5", "Shows samples of T5 as training will read them.");
  return sample_main(table, request, arguments);
}

}  // namespace espalier
