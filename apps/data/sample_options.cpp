#include "apps/data/sample_options.h"

#include "apps/tokenizer/options.h"
#include "base/format.h"

namespace espalier {

Option& add_data_rows(OptionTable& table, ShownSamples& shown, const std::string& seq_length_help) {
  data::DataSetOptions& data = shown.data;
  table.group("data");
  table.add("--data-path", data.data_path, "PREFIX of token files, or WEIGHT PREFIX WEIGHT PREFIX ...")
      .value_name("WORD");
  table.add("--data-file-list", data.data_file_list, "lines WEIGHT PREFIX CORPUS, instead of --data-path")
      .value_name("FILE");
  table.add("--split", data.split, "shares of train, valid, test for --data-path or --data-file-list")
      .default_text("969, 30, 1");
  const auto add_path = [&](const char* name, std::vector<std::string>& words) {
    table.add(name, words, "files of this set only, read completely, in the form of --data-path").value_name("WORD");
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
  Option& seq_length = table.add("--seq-length", data.sequence_length, seq_length_help).minimum(1).required();
  table.add("--seed", data.seed, "of the order").minimum(0).maximum(4294967295.0);
  table.add("--data-cache-path", data.cache_path, "keep the order in this folder").value_name("DIR");
  table.add("--data-impl", data.data_impl, "required format of the token files")
      .choices({"infer", "mmap", "lazy", "cached"});
  return seq_length;
}

void add_shown_rows(OptionTable& table, ShownSamples& shown, const std::string& json_help) {
  using Set = ShownSamples::Set;
  table.group("samples");
  table.add("--num-samples", shown.num_samples, "samples asked for, which decide the number of epochs")
      .value_name("TRAIN,VALID,TEST");
  table.add_choice("--set", shown.set, {{"train", Set::kTrain}, {"valid", Set::kValid}, {"test", Set::kTest}},
                   "which set to show");
  table.add("--group", shown.group, "which group of --set, if there are several").value_name("NAME");
  table.add("--first", shown.first, "number of the first sample, from 0").minimum(0);
  table.add("--count", shown.count, "how many").minimum(0);
  table.add("--json", shown.json, json_help);
}

void parse_num_samples(ShownSamples& shown, Problems& problems) {
  const std::string& text = shown.num_samples;
  data::DataSetOptions& data = shown.data;
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

std::unique_ptr<text::Tokenizer> load_sentence_tokenizer(ShownSamples& shown, bool is_needed, Problems& problems) {
  if (shown.tokenizer.type.empty() && !shown.tokenizer.vocab_file.empty())
    shown.tokenizer.type = "BertWordPieceLowerCase";
  if (!shown.tokenizer.type.empty()) return load_tokenizer(shown.tokenizer, problems);
  if (is_needed) problems.add("special tokens and words are the tokenizer's: give --tokenizer-type and its files");
  return nullptr;
}

void check_shown(const ShownSamples& shown, const std::string& set_name, int64_t num_samples) {
  if (shown.first > num_samples - shown.count)
    throw UserError(concat("--first ", shown.first, " --count ", shown.count, ": ", set_name, " has ",
                           format_count(num_samples), " samples, numbered from 0. Ask for more with --num-samples."),
                    ExitCode::kUsage);
}

}  // namespace espalier
