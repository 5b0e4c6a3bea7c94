#include "models/ict_task/model.h"

#include <ATen/ATen.h>

#include <numeric>

#include "base/error.h"
#include "data/sentence_vocabulary.h"
#include "models/ict/batch.h"

namespace espalier::models {
namespace {

int64_t num_used(std::span<const int64_t> mask) { return std::accumulate(mask.begin(), mask.end(), int64_t{0}); }

DataSets open_question_data(const data::DataSetOptions&, const config::RunConfig& run,
                            const text::Tokenizer& tokenizer) {
  const auto& settings = run.model.as<families::IctTaskSettings>();
  Problems problems;
  const auto vocabulary = data::SentenceVocabulary::make(tokenizer, data::SentenceModel::kBert, problems);
  const auto samples = [&](bool of_training) {
    data::QuestionSampleOptions options = families::question_samples(run, of_training);
    options.cls = vocabulary.cls, options.sep = vocabulary.sep, options.pad = vocabulary.pad;
    return options;
  };
  std::vector<data::QuestionSet> valid = families::read_valid_questions(run, problems);
  // What is only evaluated needs no other set: what is evaluated takes its place.
  const bool trains = run.training.num_steps > 0 || valid.empty();
  data::QuestionSet train = trains ? families::read_training_questions(run, problems) : valid.front();
  problems.raise(ExitCode::kBadData);
  const data::TaskEpochs in_order, epochs = trains ? families::training_epochs(run, settings) : in_order;
  DataSets sets;
  sets.train = std::make_unique<data::QuestionDataset>(std::move(train), samples(trains), epochs, tokenizer);
  for (data::QuestionSet& set : valid)
    sets.valid.push_back(std::make_unique<data::QuestionDataset>(std::move(set), samples(false), in_order, tokenizer));
  return sets;
}

std::unique_ptr<BiencoderModel> build_retriever(const nn::LayerBuilder& builder, const config::RunConfig& run,
                                                const StageOptions& options) {
  const families::BiencoderSettings& settings = run.model.as<families::IctTaskSettings>().biencoder;
  return std::make_unique<BiencoderModel>(builder, settings, families::biencoder_config(settings, run.vocabulary),
                                          options);
}

at::Tensor places_of_first(const pipeline::Stage& stage, const tensor::Batch& batch, int64_t num_queries) {
  tensor::Batch first = batch;
  const int64_t all = batch.extra.at(kSampleWeights).size(0);
  const at::Tensor there = batch.extra.at(kContextsThere).clone();
  const int64_t others = there.size(0) / all - 1;  // of each query
  there.narrow(0, num_queries, all - num_queries).zero_();
  there.narrow(0, all + num_queries * others, (all - num_queries) * others).zero_();
  first.extra[kContextsThere] = there;
  return dynamic_cast<const BiencoderModel&>(stage).own_places(first).narrow(0, 0, num_queries);
}

Ranking ranking_of(const config::RunConfig& run) {
  const auto& settings = run.model.as<families::IctTaskSettings>();
  return {.micro_batch_size = settings.eval_micro_batch_size.value_or(run.training.micro_batch_size),
          .topk = settings.biencoder.topk_accuracies,
          .own_places = places_of_first};
}

}  // namespace

tensor::Batch make_question_batch(const std::vector<SampleRow>& rows) {
  using Array = data::QuestionDataset::Array;
  std::vector<RetrievalRow> texts;
  for (const SampleRow& row : rows) {
    const auto& arrays = row.sample.arrays;
    ESPALIER_CHECK(arrays.size() > Array::kCounts, "a batch needs samples of questions");
    const size_t length = arrays[Array::kQueryTokens].size();
    RetrievalRow text{.sample_number = row.sample_number,
                      .query = {arrays[Array::kQueryTokens], num_used(arrays[Array::kQueryPadMask])},
                      .contexts = {},
                      .label = arrays[Array::kNumber].at(0),
                      .weight = static_cast<float>(arrays[Array::kCounts].at(0))};
    for (size_t begin = 0; begin < arrays[Array::kContextTokens].size(); begin += length)
      text.contexts.push_back({std::span(arrays[Array::kContextTokens]).subspan(begin, length),
                               num_used(std::span(arrays[Array::kContextPadMask]).subspan(begin, length))});
    texts.push_back(std::move(text));
  }
  return make_retrieval_batch(texts, /*may_lack_contexts=*/true);
}

const FamilyRuntime& ict_task_runtime() {
  static const FamilyRuntime runtime{
      .family = &families::ict_task_family(),
      .build = [](const nn::LayerBuilder& builder, const config::RunConfig& run, const plan::DepthRange&,
                  const StageOptions& options) -> std::unique_ptr<pipeline::Stage> {
        return build_retriever(builder, run, options);
      },
      .open_data = open_question_data,
      .collate = [](const config::RunConfig&, const text::Tokenizer&) -> Collate { return make_question_batch; },
      .ranking = ranking_of,
      .build_text_encoder = [](const nn::LayerBuilder& builder, const config::RunConfig& run)
          -> std::unique_ptr<TextEncoder> { return build_retriever(builder, run, {}); }};
  return runtime;
}

}  // namespace espalier::models
