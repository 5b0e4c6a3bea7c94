#include "train/epoch_ends.h"

#include <set>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "report/metrics_reader.h"
#include "report/run_reader.h"
#include "store/prune.h"

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
  if (epochs_before_ > 0) record_earlier();
}

void EpochEnds::record(int64_t epoch, int64_t step) const {
  if (job_.grid().rank == 0)
    log_.event("epoch", step,
               concat("the end of pass ", format_count(epoch), " over the training data, of ",
                      format_count(samples_per_epoch_), " samples"));
}

void EpochEnds::record_earlier() const {
  const std::filesystem::path folder = job_.config().checkpoint.save;
  if (store::list_steps(folder).complete.empty()) return;  // nothing to lose: a run that begins from another's
  std::set<int64_t> recorded;
  for (const report::RunEvent& event : report::read_run(folder).events)
    if (event.event == "epoch") recorded.insert(event.step);
  if (static_cast<int64_t>(recorded.size()) >= epochs_before_)
    return;  // as at every start but the first with the option
  report::Metrics metrics = report::read_metrics(folder / "metrics.jsonl", {"consumed_samples"});
  const std::vector<double>& consumed = metrics.columns["consumed_samples"];
  size_t at = 0;
  for (int64_t epoch = 1; epoch <= epochs_before_; ++epoch) {
    const auto end = static_cast<double>(epoch * samples_per_epoch_);
    while (at < consumed.size() && !(consumed[at] >= end)) ++at;
    // The first record may be of a later step than the one that ended the pass.
    if (at < consumed.size() && (at > 0 || metrics.steps[at] == 1)) {
      if (!recorded.contains(metrics.steps[at])) record(epoch, metrics.steps[at]);
    } else if (static_cast<int64_t>(recorded.size()) < epoch) {
      throw UserError(
          concat("--save-keep-epochs: nothing in '", folder.string(), "' tells at which step pass ", epoch,
                 " over the data ended, and the checkpoint of it would be removed. Give --save-keep-every N"),
          ExitCode::kUsage);
    }
  }
}

void EpochEnds::after_step(const report::StepReport& report) {
  if (!is_on()) return;
  const int64_t epochs = report.consumed_samples / samples_per_epoch_;
  if (epochs > epochs_before_) record(epochs, report.step);
  epochs_before_ = epochs;
}

}  // namespace espalier::train
