#include "families/traced_data.h"

#include <array>
#include <string_view>

#include "base/error.h"
#include "base/format.h"
#include "data/gpt_dataset.h"
#include "data/packed_dataset.h"
#include "data/sentence_dataset.h"
#include "families/bert/config.h"
#include "families/gpt/config.h"
#include "families/t5/config.h"

namespace espalier::families {
namespace {

using Source = std::unique_ptr<const data::SampleSource>;
using MakeTokenizer = std::function<std::unique_ptr<text::Tokenizer>()>;

Source open_gpt(const config::RunConfig& run, data::DataSetOptions options, const MakeTokenizer& tokenizer) {
  if (run.model.as<GptSettings>().objective.kind == data::Objective::Kind::kMultitask)
    return data::PackedDataSets::open_train(options, data::pad_id(*tokenizer()));
  // What fills samples up is part of what was recorded of them.
  if (options.packing == data::Packing::kBestFit) options.pad_id = data::pad_id(*tokenizer());
  return data::GptDataSets::open_train(options);
}

Source open_sentences(const data::DataSetOptions& options, data::SentenceSampleOptions samples,
                      const MakeTokenizer& tokenizer) {
  Problems problems;
  samples.vocabulary = data::SentenceVocabulary::make(*tokenizer(), samples.model, problems);
  problems.raise();
  return data::SentenceDataSets::open_train(options, samples);
}

struct TracedFamily {
  std::string_view name;
  Source (*open)(const config::RunConfig& run, const data::DataSetOptions& options, const MakeTokenizer& tokenizer);
};

constexpr std::array kTraced = {
    TracedFamily{"gpt", [](const config::RunConfig& run, const data::DataSetOptions& options,
                           const MakeTokenizer& tokenizer) { return open_gpt(run, options, tokenizer); }},
    TracedFamily{"bert",
                 [](const config::RunConfig& run, const data::DataSetOptions& options, const MakeTokenizer& tokenizer) {
                   return open_sentences(options, bert_samples(run), tokenizer);
                 }},
    TracedFamily{"t5",
                 [](const config::RunConfig& run, const data::DataSetOptions& options, const MakeTokenizer& tokenizer) {
                   return open_sentences(options, t5_samples(run), tokenizer);
                 }},
};

const TracedFamily* find_traced(const config::RunConfig& run) {
  for (const TracedFamily& family : kTraced)
    if (family.name == run.family->name) return &family;
  return nullptr;
}

}  // namespace

std::string untraced(const config::RunConfig& run) {
  if (find_traced(run) != nullptr) return "";
  return concat("a ", run.family->display, ", whose samples are not traced to their documents; those of `train gpt`, ",
                "`train bert` and `train t5` are");
}

Source open_traced(const config::RunConfig& run, const MakeTokenizer& tokenizer) {
  const TracedFamily* const family = find_traced(run);
  ESPALIER_CHECK(family != nullptr, run.family->name);
  return family->open(run, config::data_sets(run), tokenizer);
}

bool hashes_ids_alone(const config::RunConfig& run) {
  return std::string_view(run.family->name) == "gpt" &&
         run.model.as<GptSettings>().objective.kind == data::Objective::Kind::kCausal;
}

}  // namespace espalier::families
