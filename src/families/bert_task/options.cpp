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
  for (const char* other :
       {"ICT-ZEROSHOT-NQ", "RETRIEVER-EVAL", "RET-FINETUNE-NQ", "CoLA", "MRPC", "QNLI", "RTE", "SST-2", "STS-B"})
    task.refuse_value(other, "not supported; the tasks are MNLI, QQP and RACE");
  table.add("--train-data", settings.train_data, "files of the task to train on; of RACE, folders of *.txt")
      .value_name("PATH")
      .common();
  table.add("--valid-data", settings.valid_data, "files to evaluate after every epoch, each separately")
      .value_name("PATH")
      .common()
      .on_resume(ResumeRule::kFree);
  table.add("--epochs", settings.epochs, "passes over the training examples; 0: only evaluate")
      .minimum(0)
      .maximum(1e6)
      .common()
      .on_resume(ResumeRule::kFree);
  table.add("--keep-last", settings.keep_last, "also train on the examples of an epoch that do not fill a step")
      .common();
  table
      .add("--pretrained-checkpoint", settings.pretrained_checkpoint,
           "BERT to start from: run folder or step folder; not read if --load finds a checkpoint")
      .value_name("DIR")
      .common()
      .on_resume(ResumeRule::kFree);
  table
      .add("--predictions", settings.predictions,
           "folder for predictions-NAME.jsonl of each file of --valid-data, as the last evaluation has them")
      .value_name("DIR")
      .default_text("the run's, if any")
      .on_resume(ResumeRule::kFree);
}

// Files are checked along with the data.
void refuse_of_task(const config::Resolving& resolving, const BertTaskSettings& settings) {
  Problems& problems = resolving.problems;
  for (const char* name :
       {"--data-path", "--data-file-list", "--train-data-path", "--valid-data-path", "--test-data-path",
        "--train-weighted-split-paths", "--valid-weighted-split-paths", "--test-weighted-split-paths"})
    if (resolving.given(name))
      problems.add(resolving.origin(name), " names token files, which a task does not read; use --train-data and ",
                   "--valid-data");
  // A saved run, and so a recipe, holds the steps that its epochs made.
  const auto asked_for = [&](const std::string& name) {
    const Option& option = *resolving.table.find(name);
    return option.given() && (name != "--train-iters" || option.source() == "command line");
  };
  for (const char* name : {"--rampup-batch-size", "--train-samples", "--train-iters", "--train-tokens"})
    if (asked_for(name))
      problems.add(resolving.origin(name), ": a task counts in epochs, and each step has a full batch; use --epochs");
  if (resolving.run.data.dataloader_type == config::DataloaderType::kCyclic)
    problems.add(resolving.origin("--dataloader-type"), ": a task shuffles every epoch by itself; leave it out");
  if (resolving.run.grid.pipeline > 1)
    problems.add(resolving.origin("--pipeline-model-parallel-size"),
                 ": finetuning has no pipeline stages; use 1, and tensor or data parallelism with --zero-stage");
  if (resolving.run.plan_only) return;
  if (settings.train_data.empty() && settings.epochs > 0)
    problems.add("--train-data is required: files of ", data::facts_of(settings.task).name, ", or --epochs 0");
  if (settings.valid_data.empty() && settings.epochs == 0)
    problems.add("--valid-data is required with --epochs 0: what is to be evaluated");
  if (settings.epochs == 0 && settings.pretrained_checkpoint.empty() && resolving.run.checkpoint.load.empty())
    problems.add("--epochs 0 needs --load: the folder of the run that is to be evaluated");
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
  refuse_of_task(resolving, settings);
  if (resolving.run.data.sequence_length == 1)
    resolving.problems.add(resolving.origin("--seq-length"), " has no room for a text; use 4 or more");
}

// A run of no epochs evaluates. Where the files cannot be read, how long the run is stays open: they are checked later.
void resolve_task_epochs(config::RunConfig& run, const OptionTable& table, Problems& problems) {
  const BertTaskSettings& settings = run.model.as<BertTaskSettings>();
  run.checkpoint.pretrained = settings.pretrained_checkpoint;
  run.checkpoint.predictions = settings.predictions.empty() ? run.checkpoint.save : settings.predictions;
  run.training.num_epochs = settings.epochs;
  run.training.train_iters.reset();
  if (settings.epochs == 0) run.data.eval_only = true;
  if (settings.epochs == 0 || run.data.eval_only) return;
  Problems of_files;
  const data::TaskSet set = read_training_set(settings, of_files);
  if (!of_files.empty() || set.examples.empty()) return;
  const auto examples = static_cast<int64_t>(set.examples.size());
  run.training.steps_per_epoch = data::task_steps_of_epoch(examples, training_epochs(run));
  if (run.training.steps_per_epoch > 0)
    run.training.train_iters = settings.epochs * run.training.steps_per_epoch;
  else
    problems.add(table.origin("--global-batch-size"), " is more than the ", examples,
                 " examples of --train-data; use at most ", examples, ", or --keep-last");
}

}  // namespace internal
}  // namespace espalier::families
