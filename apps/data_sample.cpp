// espalier data sample: what the model will see, sample by sample, in the order of training.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/log.h"
#include "base/options.h"
#include "commands.h"
#include "data/gpt_dataset.h"
#include "data_commands.h"
#include "data_sample_options.h"
#include "tokenizer_options.h"

namespace espalier {
namespace {

void print(const data::GptDataset& dataset, const ShownSamples& request, const text::Tokenizer* tokenizer) {
  check_shown(request, dataset.name(), dataset.size());
  const bool is_blend = dataset.source_names().size() > 1;
  std::vector<int64_t> ids(static_cast<size_t>(dataset.sequence_length() + 1));
  for (int64_t number = request.first; number < request.first + request.count; ++number) {
    const std::string& source = dataset.source_names()[static_cast<size_t>(dataset.sample(number, ids))];
    std::string line;
    if (request.json) {
      nlohmann::ordered_json object{{"sample", number}, {"ids", ids}};
      if (is_blend) object["source"] = source;
      line = object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    } else {
      line = concat("=== sample ", number, " of ", dataset.name(), is_blend ? ", from " + source : "", " ===\n",
                    tokenizer->decode(std::vector<int32_t>(ids.begin(), ids.end())));
    }
    line += '\n';
    std::fwrite(line.data(), 1, line.size(), stdout);
  }
}

int data_sample_gpt_main(const std::vector<std::string>& arguments) {
  ShownSamples request;
  OptionTable table("espalier data sample",
                    "Shows samples as training will read them: data sample [gpt], data sample bert, data sample t5.");
  add_data_rows(table, request, "tokens of a sample; it has one id more");
  add_shown_rows(table, request, "one JSON object a sample: sample, ids and, in a blend, source");
  table.group("tokenizer (for text)");
  add_tokenizer_options(table, request.tokenizer);
  Problems problems;
  if (!table.parse(arguments, problems)) return 0;
  explain_unexpected_words(problems, "the kinds of models are gpt (which may be left out), bert and t5");
  parse_num_samples(request, problems);
  std::unique_ptr<text::Tokenizer> tokenizer;
  if (!request.json && request.tokenizer.type.empty())
    problems.add("samples are shown as text: give --tokenizer-type and its files, or --json for ids");
  else if (!request.json)
    tokenizer = load_tokenizer(request.tokenizer, problems);
  data::plan_data(request.data, problems);
  problems.raise();

  const data::GptDataSets sets = data::GptDataSets::open(request.data);
  const data::GptDataset& dataset = chosen_set(sets, request);
  log_info(dataset.description());
  print(dataset, request, tokenizer.get());
  return 0;
}

}  // namespace

const std::vector<Command>& sample_families() {
  static const std::vector<Command> list = {{"bert", "halves of sentences with masked tokens", nullptr},
                                            {"t5", "text with runs left out, and those runs", nullptr}};
  return list;
}

int data_sample_main(const std::vector<std::string>& arguments) {
  const bool completes = !arguments.empty() && arguments[0] == "--complete-words";
  const size_t place = completes ? 1 : 0;
  if (completes && arguments.size() == 2) {
    for (const Command& family : sample_families())
      if (std::string(family.name).starts_with(arguments[1])) std::printf("%s\t%s\n", family.name, family.summary);
  } else if (place < arguments.size()) {
    std::vector<std::string> rest = arguments;
    rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(place));
    if (arguments[place] == "bert") return data_sample_bert_main(rest);
    if (arguments[place] == "t5") return data_sample_t5_main(rest);
    if (arguments[place] == "gpt") return data_sample_gpt_main(rest);
  }
  return data_sample_gpt_main(arguments);  // GPT's needs no word
}

}  // namespace espalier
