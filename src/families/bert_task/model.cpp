// A finetuned BERT as data, and the files of its task.
#include "base/format.h"
#include "config/unused_options.h"
#include "data/sentence_vocabulary.h"
#include "families/bert/internal/bert.h"
#include "families/bert_task/internal/bert_task.h"

namespace espalier::families {
namespace {

constexpr double kTaskInt64 = 8, kTaskInt32 = 4;

spec::GhostProgram task_head_ghost() {
  return [](spec::GhostOps& ops, const spec::Ghost& x) {
    ops.also_first_token(ops.norm(x, spec::Normalization::kLayerNorm, false));
    return spec::Ghost();
  };
}

std::vector<spec::Depth> bert_task_depths(const BertConfig& model, data::FinetuningTask task, int64_t length) {
  const double s = static_cast<double>(length), h = static_cast<double>(model.hidden_size);
  const double rows = static_cast<double>(data::facts_of(task).num_rows);
  const double outputs = static_cast<double>(bert_task_outputs(task));
  std::vector<spec::Depth> depths = internal::bert_encoder_depths(model, {.tokens = rows * s, .pairs = rows * s * s});
  depths.back() = {.name = depths.back().name,
                   .forward_flops = 2 * rows * h * (h + outputs),
                   .summed_backward = rows * s * h,
                   .ghost = task_head_ghost()};
  for (spec::Depth& depth : depths) depth.tokens = rows * s;
  return depths;
}

spec::ModelSpec bert_task_model(const config::RunConfig& run) {
  const BertConfig model = bert_task_config(run);
  const data::FinetuningTask task = run.model.as<BertTaskSettings>().task;
  const double tokens =
      static_cast<double>(run.data.sequence_length) * static_cast<double>(data::facts_of(task).num_rows);
  return {.family = "bert-task",
          .description = concat(model.num_layers, " layers, ", model.hidden_size, " wide, ", model.num_attention_heads,
                                " heads, for ", data::facts_of(task).name),
          .params = bert_task_params(model, task),
          .depths = bert_task_depths(model, task, run.data.sequence_length),
          .vocabulary = {.size = model.vocab_size, .padded_size = model.padded_vocab_size},
          .hidden_size = model.hidden_size,
          .has_dropout = model.hidden_dropout > 0,
          .batch_bytes = (3 * kTaskInt64 + kTaskInt32) * tokens + 2 * kTaskInt64};
}

config::FamilyConfig new_bert_task() { return config::FamilyConfig(BertTaskSettings{}); }
int64_t bert_task_layers(const config::FamilyConfig& config) {
  return config.as<BertTaskSettings>().bert.shape.num_layers;
}

const std::string& bert_task_pretrained(const config::FamilyConfig& config) {
  return config.as<BertTaskSettings>().pretrained_checkpoint;
}

// Every option of the family has its effect whatever the others are.
void find_unused_bert_task(const config::RunConfig&, config::UnusedOptions&) {}

void check_bert_task_data(const config::RunConfig& run, const text::Tokenizer* tokenizer, const data::DataPlan&,
                          Problems& problems) {
  const BertTaskSettings& settings = run.model.as<BertTaskSettings>();
  if (tokenizer != nullptr) data::SentenceVocabulary::make(*tokenizer, data::SentenceModel::kBert, problems);
  if (!settings.train_data.empty()) read_training_set(settings, problems);
  read_valid_sets(settings, problems);
}

}  // namespace

const char* bert_task_head(data::FinetuningTask task) {
  return task == data::FinetuningTask::kRace ? "multichoice_head" : "classification_head";
}

int64_t bert_task_outputs(data::FinetuningTask task) {
  const data::TaskFacts& facts = data::facts_of(task);
  return facts.num_classes / facts.num_rows;
}

BertConfig bert_task_config(const config::RunConfig& run) {
  BertConfig model = run.model.as<BertTaskSettings>().bert.shape;
  model.vocab_size = run.vocabulary.size;
  model.padded_vocab_size = run.vocabulary.padded_size;
  return model;
}

std::vector<spec::ParamSpec> bert_task_params(const BertConfig& config, data::FinetuningTask task) {
  ParamList params;
  const spec::Init normal = spec::Init::normal(config.init_method_std);
  internal::add_bert_encoder_params(params, config, false);
  params.add_dense("pooler.dense", config.hidden_size, config.hidden_size, normal);
  params.add_dense(bert_task_head(task), bert_task_outputs(task), config.hidden_size, normal);
  return params.take();
}

data::TaskSet read_training_set(const BertTaskSettings& settings, Problems& problems) {
  data::TaskSet set;
  set.name = "train";
  for (const std::string& path : settings.train_data) {
    data::TaskExamples read = data::read_task_examples(settings.task, path, problems);
    if (!read.has_labels) problems.add("--train-data ", path, " has no labels to train on; it is a test set");
    set.paths.push_back(path);
    for (data::TaskExample& example : read.examples) set.examples.push_back(std::move(example));
  }
  return set;
}

std::vector<data::TaskSet> read_valid_sets(const BertTaskSettings& settings, Problems& problems) {
  std::vector<data::TaskSet> sets;
  for (const std::string& path : settings.valid_data) {
    data::TaskExamples read = data::read_task_examples(settings.task, path, problems);
    for (const data::TaskSet& other : sets)
      if (other.name == read.name)
        problems.add("--valid-data ", other.paths[0], " and ", path, " would both be called '", read.name,
                     "' in metrics; rename one");
    sets.push_back({read.name, {path}, std::move(read.examples), read.has_labels});
  }
  return sets;
}

const config::Family& bert_task_family() {
  static const config::Family family{.name = "bert-task",
                                     .display = "BERT finetuning",
                                     .kin = "a BERT finetuned for RACE, MNLI or QQP, as Megatron's tasks/main.py",
                                     .summary = "Finetunes a BERT for a task: RACE, MNLI or QQP.",
                                     .tokenizer_type = "BertWordPieceLowerCase",
                                     .new_config = new_bert_task,
                                     .add_options = internal::add_bert_task_options,
                                     .resolve = internal::resolve_bert_task,
                                     .find_unused = find_unused_bert_task,
                                     .num_layers = bert_task_layers,
                                     .resolve_epochs = internal::resolve_task_epochs,
                                     .pretrained = {.folder = bert_task_pretrained},
                                     .reads_token_files = false,
                                     .model = bert_task_model,
                                     .check_data = check_bert_task_data};
  return family;
}

}  // namespace espalier::families
