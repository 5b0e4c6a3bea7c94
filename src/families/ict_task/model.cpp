// A retriever that is finetuned, as data, and the files of its questions.
#include <filesystem>

#include "config/unused_options.h"
#include "data/sentence_vocabulary.h"
#include "families/ict/internal/ict.h"
#include "families/ict_task/internal/ict_task.h"

namespace espalier::families {
namespace {

config::FamilyConfig new_ict_task() { return config::FamilyConfig(IctTaskSettings{}); }

int64_t ict_task_layers(const config::FamilyConfig& config) {
  const BiencoderSettings& settings = config.as<IctTaskSettings>().biencoder;
  return settings.bert.shape.num_layers * (settings.shared ? 1 : 2);
}

spec::ModelSpec ict_task_model(const config::RunConfig& run) {
  const IctTaskSettings& settings = run.model.as<IctTaskSettings>();
  return internal::biencoder_model_spec("ict-task", biencoder_config(settings.biencoder, run.vocabulary),
                                        run.data.sequence_length, 1 + settings.num_hard_negatives());
}

void find_unused_ict_task(const config::RunConfig& run, config::UnusedOptions& unused) {
  unused.add_if(!run.model.as<IctTaskSettings>().train_with_neg, {"--train-hard-neg"},
                "only --train-with-neg trains with passages of a question's own that do not answer it");
}

void check_ict_task_data(const config::RunConfig& run, const text::Tokenizer* tokenizer, const data::DataPlan&,
                         Problems& problems) {
  if (tokenizer != nullptr) data::SentenceVocabulary::make(*tokenizer, data::SentenceModel::kBert, problems);
  if (!run.model.as<IctTaskSettings>().train_data.empty()) read_training_questions(run, problems);
  read_valid_questions(run, problems);
}

const std::string& ict_task_pretrained(const config::FamilyConfig& config) {
  const IctTaskSettings& settings = config.as<IctTaskSettings>();
  return settings.pretrained_checkpoint.empty() ? settings.bert_load : settings.pretrained_checkpoint;
}

}  // namespace

data::QuestionSampleOptions question_samples(const config::RunConfig& run, bool of_training) {
  const IctTaskSettings& settings = run.model.as<IctTaskSettings>();
  return {.sequence_length = run.data.sequence_length,
          .seed = run.training.seed,
          .hard_negatives = of_training ? settings.num_hard_negatives() : settings.val_av_rank_hard_neg,
          .negatives = of_training ? 0 : settings.val_av_rank_other_neg,
          .draws = of_training};
}

data::QuestionSet read_training_questions(const config::RunConfig& run, Problems& problems) {
  data::QuestionSet set;
  set.name = "train";
  set.paths = run.model.as<IctTaskSettings>().train_data;
  const data::KeptPassages keep = question_samples(run, true).kept();
  for (const std::string& path : set.paths) data::read_question_examples(path, keep, set.examples, problems);
  return set;
}

std::vector<data::QuestionSet> read_valid_questions(const config::RunConfig& run, Problems& problems) {
  std::vector<data::QuestionSet> sets;
  const data::KeptPassages keep = question_samples(run, false).kept();
  for (const std::string& path : run.model.as<IctTaskSettings>().valid_data) {
    data::QuestionSet set;
    set.name = std::filesystem::path(path).stem().string();
    set.paths = {path};
    for (const data::QuestionSet& other : sets)
      if (other.name == set.name)
        problems.add("--valid-data ", other.paths[0], " and ", path, " would both be called '", set.name,
                     "' in metrics; rename one");
    data::read_question_examples(path, keep, set.examples, problems);
    sets.push_back(std::move(set));
  }
  return sets;
}

const config::Family& ict_task_family() {
  static const config::Family family{
      .name = "ict-task",
      .display = "retriever finetuning",
      .kin = "a retriever finetuned on questions and passages, as Megatron's tasks/main.py",
      .summary =
          "Finetunes a retriever on questions, passages that answer them, and "
          "others that do not.",
      .tokenizer_type = "BertWordPieceLowerCase",
      .new_config = new_ict_task,
      .add_options = internal::add_ict_task_options,
      .resolve = internal::resolve_ict_task,
      .find_unused = find_unused_ict_task,
      .num_layers = ict_task_layers,
      .resolve_epochs = internal::resolve_ict_task_epochs,
      .pretrained = {.folder = ict_task_pretrained, .names = internal::biencoder_pretrained_names},
      .reads_token_files = false,
      .competes_across_replicas = true,
      .model = ict_task_model,
      .check_data = check_ict_task_data};
  return family;
}

}  // namespace espalier::families
