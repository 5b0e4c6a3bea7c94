#include "train/epoch_ends.h"

#include "base/error.h"
#include "base/format.h"

namespace espalier::train {
namespace {

int64_t samples_of(const Job& job) {
  const config::RunConfig& config = job.config();
  if (config.training.steps_per_epoch > 0) return config.training.steps_per_epoch * *config.training.global_batch_size;
  return job.train_loader().source().samples_per_epoch();
}

}  // namespace

EpochEnds::EpochEnds(Job& job, report::RunLog& log) : job_(job), log_(log) {
  if (!job.config().checkpoint.save_keep_epochs) return;
  samples_per_epoch_ = samples_of(job);
  if (samples_per_epoch_ <= 0)
    throw UserError(
        "--save-keep-epochs: how many samples a pass over these data takes depends on their order. Give "
        "--save-keep-every N",
        ExitCode::kUsage);
  epochs_before_ = job.trainer().position().consumed_samples / samples_per_epoch_;
}

void EpochEnds::after_step(const report::StepReport& report) {
  if (!is_on()) return;
  const int64_t epochs = report.consumed_samples / samples_per_epoch_;
  if (epochs > epochs_before_ && job_.grid().rank == 0)
    log_.event("epoch", report.step,
               concat("the end of pass ", format_count(epochs), " over the training data, of ",
                      format_count(samples_per_epoch_), " samples"));
  epochs_before_ = epochs;
}

}  // namespace espalier::train
