// Rows of `espalier train bert-task`, what they derive, and what they refuse.
#include "config/resolving.h"
#include "families/bert/internal/bert.h"
#include "families/bert_task/internal/bert_task.h"

namespace espalier::families {
namespace {

using data::FinetuningTask;

void add_task_rows(OptionTable& table, BertTaskSettings& settings) {
  Option& task =
      table
          .add_choice("--task", settings.task,
                      {{"MNLI", FinetuningTask::kMnli}, {"QQP", FinetuningTask::kQqp}, {"RACE", FinetuningTask::kRace}},
                      "what the model is finetuned for")
          .common()
          .on_resume(ResumeRule::kRefused);
  for (const char* scored : {"LAMBADA", "WIKITEXT103"})
    task.refuse_value(scored, "it trains nothing; use espalier eval --task lambada or wikitext");
  for (const char* asked : {"ICT-ZEROSHOT-NQ", "RETRIEVER-EVAL"})
    task.refuse_value(asked, "it trains nothing; use espalier index evaluate");
  task.refuse_value("RET-FINETUNE-NQ", "a retriever is finetuned by espalier train ict-task");
  for (const char* other : {"CoLA", "MRPC", "QNLI", "RTE", "SST-2", "STS-B"})
    task.refuse_value(other, "not supported; the tasks are MNLI, QQP and RACE");
  add_task_run_rows(table, settings,
                    {.train_data = "files of the task to train on; of RACE, folders of *.txt",
                     .pretrained_checkpoint = "BERT to begin with"});
  table
      .add("--predictions", settings.predictions,
           "folder for predictions-NAME.jsonl of each file of --valid-data, as the last evaluation has them")
      .value_name("DIR")
      .default_text("the run's, if any")
      .on_resume(ResumeRule::kFree);
}

}  // namespace

namespace internal {

void add_bert_task_options(OptionTable& table, config::FamilyConfig& config, config::FamilyRows where) {
  BertTaskSettings& settings = config.as<BertTaskSettings>();
  add_bert_model_rows(table, settings.bert, where);
  if (where == config::FamilyRows::kData) add_task_rows(table, settings);
}

void resolve_bert_task(const config::Resolving& resolving, config::FamilyConfig& config) {
  BertTaskSettings& settings = config.as<BertTaskSettings>();
  resolve_bert_model(resolving, settings.bert);
  check_task_run(resolving, settings, concat("files of ", data::facts_of(settings.task).name));
  if (resolving.run.grid.pipeline > 1)
    resolving.problems.add(resolving.origin("--pipeline-model-parallel-size"),
                           ": finetuning has no pipeline stages; use 1, and tensor or data parallelism with ",
                           "--zero-stage");
  if (resolving.run.data.sequence_length == 1)
    resolving.problems.add(resolving.origin("--seq-length"), " has no room for a text; use 4 or more");
}

void resolve_task_epochs(config::RunConfig& run, const OptionTable& table, Problems& problems) {
  const BertTaskSettings& settings = run.model.as<BertTaskSettings>();
  run.checkpoint.predictions = settings.predictions.empty() ? run.checkpoint.save : settings.predictions;
  const auto count_examples = [&]() -> int64_t {
    Problems of_files;  // they are told later
    const data::TaskSet set = read_training_set(settings, of_files);
    return of_files.empty() ? static_cast<int64_t>(set.examples.size()) : 0;
  };
  resolve_task_run(run, table, settings, count_examples, problems);
}

}  // namespace internal
}  // namespace espalier::families
