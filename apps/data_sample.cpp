// espalier data sample: what the model will see, sample by sample, in the order
// of training.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/log.h"
#include "base/options.h"
#include "data/gpt_dataset.h"
#include "data_commands.h"
#include "tokenizer_options.h"

namespace espalier {
namespace {

enum class Set { kTrain, kValid, kTest };

struct SampleRequest {
  data::DataSetOptions data;
  text::TokenizerOptions tokenizer;
  std::string num_samples = "0,0,0", group;
  Set set = Set::kTrain;
  int64_t first = 0, count = 8;
  bool json = false;
};

void add_data_rows(OptionTable& table, data::DataSetOptions& data) {
  table.group("data");
  table.add("--data-path", data.data_path, "PREFIX of token files, or WEIGHT PREFIX WEIGHT PREFIX ...")
      .value_name("WORD");
  table.add("--data-file-list", data.data_file_list, "lines WEIGHT PREFIX CORPUS, instead of --data-path")
      .value_name("FILE");
  table.add("--split", data.split, "shares of train, valid, test for --data-path or --data-file-list")
      .default_text("969, 30, 1");
  const auto add_path = [&](const char* name, std::vector<std::string>& words) {
    table.add(name, words, "files of this set alone, read whole, in the form of --data-path").value_name("WORD");
  };
  add_path("--train-data-path", data.train_data_path);
  add_path("--valid-data-path", data.valid_data_path);
  add_path("--test-data-path", data.test_data_path);
  const auto add_groups = [&](const std::string& set, std::vector<std::string>& groups, std::string& file) {
    const std::string name = concat("--", set, "-weighted-split-paths");
    table
        .add(name, groups,
             "\"NAME: WEIGHT a:b PREFIX, WEIGHT a:b PREFIX\", instead of "
             "--data-path")
        .value_name("GROUP");
    table.add(name + "-path", file, "a file with these groups in double quotes").value_name("FILE");
  };
  add_groups("train", data.train_weighted_split_paths, data.train_weighted_split_paths_path);
  add_groups("valid", data.valid_weighted_split_paths, data.valid_weighted_split_paths_path);
  add_groups("test", data.test_weighted_split_paths, data.test_weighted_split_paths_path);
  table.add("--seq-length", data.sequence_length, "tokens of a sample; it has one id more").minimum(1).required();
  table.add("--seed", data.seed, "of the order").minimum(0).maximum(4294967295.0);
  table.add("--data-cache-path", data.cache_path, "keep the order in this folder").value_name("DIR");
}

void add_rows(OptionTable& table, SampleRequest& request) {
  add_data_rows(table, request.data);
  table.add("--data-impl", request.data.data_impl, "what the token files have to be")
      .choices({"infer", "mmap", "lazy", "cached"});
  table.group("samples");
  table.add("--num-samples", request.num_samples, "samples asked for, which decide the number of epochs")
      .value_name("TRAIN,VALID,TEST");
  table.add_choice("--set", request.set, {{"train", Set::kTrain}, {"valid", Set::kValid}, {"test", Set::kTest}},
                   "which set to show");
  table.add("--group", request.group, "which group of --set, where there are several").value_name("NAME");
  table.add("--first", request.first, "number of the first sample, from 0").minimum(0);
  table.add("--count", request.count, "how many").minimum(0);
  table.add("--json", request.json, "one JSON object a sample: sample, ids and, in a blend, source");
  table.group("tokenizer (for text)");
  add_tokenizer_options(table, request.tokenizer);
}

void parse_num_samples(const std::string& text, data::DataSetOptions& data, Problems& problems) {
  int64_t* const targets[] = {&data.train_samples, &data.valid_samples, &data.test_samples};
  const std::vector<std::string> words = split(text, ',');
  bool good = words.size() == 3;
  for (size_t at = 0; good && at < 3; ++at) {
    const std::string word = strip(words[at]);
    good = !word.empty() && word.size() <= 18 && word.find_first_not_of("0123456789") == std::string::npos;
    if (good) *targets[at] = std::stoll(word);
  }
  if (!good)
    problems.add("--num-samples ", text,
                 ": expected three whole numbers TRAIN,VALID,TEST, for example "
                 "1000,100,10");
}

const data::GptDataset& choose(const data::GptDataSets& sets, const SampleRequest& request) {
  if (request.set == Set::kTrain) return *sets.train;
  const char* const name = request.set == Set::kValid ? "valid" : "test";
  const auto& groups = request.set == Set::kValid ? sets.valid : sets.test;
  std::vector<std::string> names;
  for (const auto& group : groups) {
    if (group->name() == request.group || (request.group.empty() && groups.size() == 1)) return *group;
    names.push_back(group->name());
  }
  if (names.empty()) throw UserError(concat("--set ", name, ": there is no document for it"), ExitCode::kUsage);
  throw UserError(concat("--set ", name, " has the groups ", join(names, ", "), ". Choose one with --group."),
                  ExitCode::kUsage);
}

void print(const data::GptDataset& dataset, const SampleRequest& request, const text::Tokenizer* tokenizer) {
  if (request.first > dataset.size() - request.count)
    throw UserError(concat("--first ", request.first, " --count ", request.count, ": ", dataset.name(), " has ",
                           format_count(dataset.size()), " samples, numbered from 0. Ask for more with --num-samples."),
                    ExitCode::kUsage);
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

}  // namespace

int data_sample_main(const std::vector<std::string>& arguments) {
  SampleRequest request;
  OptionTable table("espalier data sample", "Shows samples as training will read them.");
  add_rows(table, request);
  Problems problems;
  if (!table.parse(arguments, problems)) return 0;
  parse_num_samples(request.num_samples, request.data, problems);
  std::unique_ptr<text::Tokenizer> tokenizer;
  if (!request.json && request.tokenizer.type.empty())
    problems.add(
        "samples are shown as text: give --tokenizer-type and its "
        "files, or --json for ids");
  else if (!request.json)
    tokenizer = load_tokenizer(request.tokenizer, problems);
  data::plan_data(request.data, problems);
  problems.raise();

  const data::GptDataSets sets = data::GptDataSets::open(request.data);
  const data::GptDataset& dataset = choose(sets, request);
  log_info(dataset.description());
  print(dataset, request, tokenizer.get());
  return 0;
}

}  // namespace espalier
