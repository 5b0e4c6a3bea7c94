// What `espalier data sample` takes for every kind of model: the data, which samples of them, and how to print.
#pragma once

#include <memory>
#include <string>

#include "base/options.h"
#include "data/data_plan.h"
#include "text/tokenizer.h"

namespace espalier {

struct ShownSamples {
  enum class Set { kTrain, kValid, kTest };

  data::DataSetOptions data;
  text::TokenizerOptions tokenizer;
  std::string num_samples = "0,0,0", group;
  Set set = Set::kTrain;
  int64_t first = 0, count = 8;
  bool json = false;
};

// --data-path to --data-impl. Returns the row of --seq-length, whose help is `seq_length_help`.
Option& add_data_rows(OptionTable& table, ShownSamples& shown, const std::string& seq_length_help);
// --num-samples to --json. `json_help` says what the objects hold.
void add_shown_rows(OptionTable& table, ShownSamples& shown, const std::string& json_help);

// --num-samples into shown.data.
void parse_num_samples(ShownSamples& shown, Problems& problems);

// The tokenizer of a set of sentences: of BERT's type where only a vocabulary is given, as training has it. Null where
// none is given, which is a problem where it is needed.
std::unique_ptr<text::Tokenizer> load_sentence_tokenizer(ShownSamples& shown, bool is_needed, Problems& problems);

// Throws a UserError where the set has fewer samples than are to be shown.
void check_shown(const ShownSamples& shown, const std::string& set_name, int64_t num_samples);

// Of sets as GptDataSets and SentenceDataSets hold them, the one to show.
template <class DataSets>
auto& chosen_set(const DataSets& sets, const ShownSamples& shown) {
  if (shown.set == ShownSamples::Set::kTrain) return *sets.train;
  const std::string name = shown.set == ShownSamples::Set::kValid ? "valid" : "test";
  const auto& groups = shown.set == ShownSamples::Set::kValid ? sets.valid : sets.test;
  std::string names;
  for (const auto& group : groups) {
    if (group->name() == shown.group || (shown.group.empty() && groups.size() == 1)) return *group;
    names += (names.empty() ? "" : ", ") + group->name();
  }
  if (names.empty()) throw UserError("--set " + name + ": there is no document for it", ExitCode::kUsage);
  throw UserError("--set " + name + " has the groups " + names + ". Choose one with --group.", ExitCode::kUsage);
}

// `arguments` are the words after `data sample FAMILY`.
int data_sample_gpt_main(const std::vector<std::string>& arguments);
int data_sample_bert_main(const std::vector<std::string>& arguments);
int data_sample_t5_main(const std::vector<std::string>& arguments);
int data_sample_ict_main(const std::vector<std::string>& arguments);

}  // namespace espalier
