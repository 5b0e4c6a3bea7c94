#include "models/bert_task/model.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "base/error.h"
#include "data/sentence_vocabulary.h"
#include "kernels/dropout.h"
#include "models/bert/batch.h"

namespace espalier::models {

BertTaskModel::BertTaskModel(const nn::LayerBuilder& builder, const families::BertConfig& config,
                             data::FinetuningTask task, const plan::DepthRange& part, const StageOptions& options)
    : task_(task),
      dropout_(config.hidden_dropout),
      seed_(options.seed),
      grid_(builder.grid),
      sequence_parallel_(builder.sequence_parallel),
      encoder_(builder, config, part, options),
      pooler_(builder, "pooler.dense"),
      head_(builder, families::bert_task_head(task)) {
  ESPALIER_CHECK(encoder_.is_first() && encoder_.is_last(), "a part of a model that is finetuned");
}

std::vector<pipeline::TensorShape> BertTaskModel::input_shapes(const tensor::Batch& batch) const {
  return encoder_.input_shapes(batch);
}

std::vector<pipeline::TensorShape> BertTaskModel::output_shapes(const tensor::Batch& batch) const {
  return encoder_.output_shapes(batch);
}

at::Tensor BertTaskModel::pooled(const at::Tensor& hidden) const {
  return pooler_.forward(hidden.select(0, 0).contiguous()).tanh();
}

at::Tensor BertTaskModel::drop(const at::Tensor& pooled, const pipeline::StageInput& input) const {
  const kernels::DropoutSite site{.probability = input.training ? dropout_ : 0,
                                  .key = tensor::philox_key(seed_, "dropout/head"),
                                  .sample_numbers = &input.batch->sample_numbers};
  return kernels::dropout(pooled.unsqueeze(0), site).squeeze(0);
}

at::Tensor BertTaskModel::head_logits(const at::Tensor& pooled) const {
  const at::Tensor outputs = head_.forward(pooled).to(at::kFloat);
  return outputs.reshape({-1, data::facts_of(task_).num_classes});
}

pipeline::StageOutput BertTaskModel::forward(const pipeline::StageInput& input) {
  const tensor::Batch& batch = *input.batch;
  const at::Tensor logits = head_logits(drop(pooled(encoder_.forward(input)), input));
  const at::Tensor losses = at::cross_entropy_loss(logits, batch.extra.at(kClassLabels), {}, at::Reduction::None);
  pipeline::StageOutput output;
  output.loss.push_back(encoder_.first_token_loss("lm loss", losses, batch.extra.at(kSampleWeights), batch));
  return output;
}

// Of the first token, which one rank of a divided sequence has; the others add nothing.
at::Tensor BertTaskModel::class_logits(const tensor::Batch& batch) const {
  const at::NoGradGuard no_grad;
  at::Tensor logits = head_logits(pooled(encoder_.forward({.batch = &batch, .tensors = {}, .training = false})));
  if (!encoder_.has_first_token(batch)) logits.zero_();
  grid_.context.all_reduce(logits);
  if (sequence_parallel_) grid_.tensor.all_reduce(logits);
  return logits;
}

void BertTaskModel::visit(tensor::ParamVisitor& visitor) {
  encoder_.visit(visitor);
  visitor.child("pooler.dense", pooler_);
  visitor.child(families::bert_task_head(task_), head_);
}

namespace {

DataSets open_task_data(const data::DataSetOptions&, const config::RunConfig& run, const text::Tokenizer& tokenizer) {
  const auto& settings = run.model.as<families::BertTaskSettings>();
  Problems problems;
  const auto vocabulary = data::SentenceVocabulary::make(tokenizer, data::SentenceModel::kBert, problems);
  const data::TaskSampleOptions samples{
      .task = settings.task,
      .sequence_length = run.data.sequence_length,
      .seed = run.training.seed,
      .tokens = {.cls = vocabulary.cls, .sep = vocabulary.sep, .pad = vocabulary.pad}};
  std::vector<data::TaskSet> valid = families::read_valid_sets(settings, problems);
  // What is only evaluated needs no other set: what is evaluated takes its place.
  const bool trains = run.training.num_steps > 0 || valid.empty();
  data::TaskSet train = trains ? families::read_training_set(settings, problems) : valid.front();
  problems.raise(ExitCode::kBadData);
  DataSets sets;
  sets.train = std::make_unique<data::TaskDataset>(
      std::move(train), samples, trains ? families::training_epochs(run, settings) : data::TaskEpochs{}, tokenizer);
  for (data::TaskSet& set : valid)
    sets.valid.push_back(std::make_unique<data::TaskDataset>(std::move(set), samples, data::TaskEpochs{}, tokenizer));
  return sets;
}

}  // namespace

const FamilyRuntime& bert_task_runtime() {
  static const FamilyRuntime runtime{
      .family = &families::bert_task_family(),
      .build = [](const nn::LayerBuilder& builder, const config::RunConfig& run, const plan::DepthRange& depths,
                  const StageOptions& options) -> std::unique_ptr<pipeline::Stage> {
        return std::make_unique<BertTaskModel>(builder, families::bert_task_config(run),
                                               run.model.as<families::BertTaskSettings>().task, depths, options);
      },
      .open_data = open_task_data,
      .collate = [](const config::RunConfig& run, const text::Tokenizer&) -> Collate {
        return [task = run.model.as<families::BertTaskSettings>().task](const std::vector<SampleRow>& rows) {
          return make_task_batch(rows, task);
        };
      },
      .class_logits =
          [](const pipeline::Stage& stage, const tensor::Batch& batch) {
            return dynamic_cast<const BertTaskModel&>(stage).class_logits(batch);
          }};
  return runtime;
}

}  // namespace espalier::models
