#include "families/task_run.h"

#include "config/resolving.h"

namespace espalier::families {

void add_task_run_rows(OptionTable& table, TaskRunSettings& settings, const TaskWords& words) {
  table.add("--train-data", settings.train_data, words.train_data).value_name("PATH").common();
  table.add("--valid-data", settings.valid_data, "files to evaluate after every epoch, each for itself")
      .value_name("PATH")
      .common()
      .on_resume(ResumeRule::kFree);
  table.add("--epochs", settings.epochs, "passes over the training examples; 0: evaluate and exit")
      .minimum(0)
      .maximum(1e6)
      .common()
      .on_resume(ResumeRule::kFree);
  table.add("--keep-last", settings.keep_last, "also train on the examples of an epoch that do not fill a whole step")
      .common();
  table
      .add("--pretrained-checkpoint", settings.pretrained_checkpoint,
           concat(words.pretrained_checkpoint, ": run folder or step folder; not read where --load finds a checkpoint"))
      .value_name("DIR")
      .common()
      .on_resume(ResumeRule::kFree);
}

void check_task_run(const config::Resolving& resolving, const TaskRunSettings& settings, const std::string& files) {
  Problems& problems = resolving.problems;
  for (const char* name :
       {"--data-path", "--data-file-list", "--train-data-path", "--valid-data-path", "--test-data-path",
        "--train-weighted-split-paths", "--valid-weighted-split-paths", "--test-weighted-split-paths"})
    if (resolving.given(name))
      problems.add(resolving.origin(name), " names token files, which a task does not read; use --train-data and ",
                   "--valid-data");
  // A saved run, and so a recipe, has the steps that its epochs amounted to.
  const auto asked_for = [&](const std::string& name) {
    const Option& option = *resolving.table.find(name);
    return option.given() && (name != "--train-iters" || option.source() == "command line");
  };
  for (const char* name : {"--rampup-batch-size", "--train-samples", "--train-iters", "--train-tokens"})
    if (asked_for(name))
      problems.add(resolving.origin(name), ": a task counts in epochs, and each step has a full batch; use --epochs");
  if (resolving.run.data.dataloader_type == config::DataloaderType::kCyclic)
    problems.add(resolving.origin("--dataloader-type"), ": a task shuffles each epoch separately; leave it out");
  if (resolving.run.plan_only) return;
  if (settings.train_data.empty() && settings.epochs > 0)
    problems.add("--train-data is required: ", files, ", or --epochs 0");
  if (settings.valid_data.empty() && settings.epochs == 0)
    problems.add("--valid-data is required with --epochs 0: what is to be evaluated");
  if (settings.epochs == 0 && settings.pretrained_checkpoint.empty() && resolving.run.checkpoint.load.empty())
    problems.add("--epochs 0 needs --load: the folder of the run that is to be evaluated");
}

data::TaskEpochs training_epochs(const config::RunConfig& run, const TaskRunSettings& settings) {
  return {.num_epochs = settings.epochs,
          .global_batch_size = *run.training.global_batch_size,
          .keep_last = settings.keep_last};
}

void resolve_task_run(config::RunConfig& run, const OptionTable& table, const TaskRunSettings& settings,
                      const std::function<int64_t()>& count_examples, Problems& problems) {
  run.training.num_epochs = settings.epochs;
  run.training.train_iters.reset();
  if (settings.epochs == 0) run.data.eval_only = true;
  if (settings.epochs == 0 || run.data.eval_only) return;
  const int64_t examples = count_examples();
  if (examples == 0) return;
  run.training.steps_per_epoch = data::task_steps_of_epoch(examples, training_epochs(run, settings));
  if (run.training.steps_per_epoch > 0)
    run.training.train_iters = settings.epochs * run.training.steps_per_epoch;
  else
    problems.add(table.origin("--global-batch-size"), " is more than the ", examples,
                 " examples of --train-data; use at most ", examples, ", or --keep-last");
}

}  // namespace espalier::families
