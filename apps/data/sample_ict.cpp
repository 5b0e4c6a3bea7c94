// espalier data sample ict: queries and the blocks of text that they are from.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/data/sample_options.h"
#include "apps/tokenizer/options.h"
#include "base/format.h"
#include "base/log.h"
#include "data/ict_dataset.h"
#include "families/sentence_options.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

struct IctRequest {
  ShownSamples shown;
  data::IctSampleOptions samples;
  bool mapping = false;
};

std::string row_text(const data::BlockMap::Row& row, bool json) {
  if (json) return Json{{"row", {row.first, row.end, row.document, row.block}}}.dump();
  return concat(row.first, " ", row.end, " ", row.document, " ", row.block);
}

std::string ict_json(const data::IctDataset& dataset, const data::Sample& sample) {
  Json object;
  for (size_t at = 0; at < dataset.fields().size(); ++at) object[dataset.fields()[at].name] = sample.arrays[at];
  return object.dump();
}

std::string ict_text(const data::IctDataset& dataset, const data::Sample& sample, int64_t number,
                     const text::Tokenizer& tokenizer) {
  const auto decoded = [&](const char* tokens, const char* mask) {
    const std::vector<int64_t>&ids = sample.arrays[dataset.field(tokens)],
          &is_token = sample.arrays[dataset.field(mask)];
    std::vector<int32_t> kept;
    for (size_t at = 0; at < ids.size(); ++at)
      if (is_token[at] != 0) kept.push_back(static_cast<int32_t>(ids[at]));
    return tokenizer.decode(kept);
  };
  return concat("=== sample ", number, " of ", dataset.name(), " ===\n", decoded("query_tokens", "query_pad_mask"),
                "\n--- block: ", decoded("context_tokens", "context_pad_mask"));
}

void print_ict(const data::IctDataset& dataset, const IctRequest& request, const text::Tokenizer* tokenizer) {
  const ShownSamples& shown = request.shown;
  check_shown(shown, dataset.name(), dataset.size());
  data::Sample sample;
  for (int64_t number = shown.first; number < shown.first + shown.count; ++number) {
    std::string line;
    if (request.mapping) {
      line = row_text(dataset.map()[number], shown.json);
    } else {
      dataset.read(number, sample);
      line = shown.json ? ict_json(dataset, sample) : ict_text(dataset, sample, number, *tokenizer);
    }
    line += '\n';
    std::fwrite(line.data(), 1, line.size(), stdout);
  }
}

}  // namespace

int data_sample_ict_main(const std::vector<std::string>& arguments) {
  IctRequest request;
  ShownSamples& shown = request.shown;
  OptionTable table("espalier data sample ict", "Shows samples of the inverse cloze task.");
  add_data_rows(table, shown, "tokens of a query, and of a block with its title");
  table.group("queries and blocks");
  families::add_ict_rows(table, request.samples);
  add_shown_rows(
      table, shown,
      "one JSON object a sample: query_tokens, query_pad_mask, context_tokens, context_pad_mask, block_data; "
      "with --mapping: row");
  table.add("--mapping", request.mapping,
            "rows of the map instead: first sentence, end, document and number of the block in its epoch");
  table.group("tokenizer");
  add_tokenizer_options(table, shown.tokenizer);
  Problems problems;
  if (!table.parse(arguments, problems)) return 0;
  parse_num_samples(shown, problems);
  request.samples.sequence_length = shown.data.sequence_length;
  const std::unique_ptr<text::Tokenizer> tokenizer = load_sentence_tokenizer(shown, !request.mapping, problems);
  if (tokenizer)
    request.samples.vocabulary = data::SentenceVocabulary::make(*tokenizer, data::SentenceModel::kBert, problems);
  const data::DataPlan plan = data::plan_data(shown.data, problems);
  // Without a length, or with a bad one, there is something to say already.
  if (shown.data.sequence_length > 0) data::check_ict(plan, shown.data, request.samples, problems);
  problems.raise();

  const data::IctDataSets sets = data::IctDataSets::open(shown.data, request.samples);
  const data::IctDataset& dataset = chosen_set(sets, shown);
  log_info(dataset.description());
  print_ict(dataset, request, tokenizer.get());
  return 0;
}

}  // namespace espalier
