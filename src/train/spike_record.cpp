#include "train/spike_record.h"

#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "data/sample_pieces.h"
#include "store/run_folder.h"

namespace espalier::train {
namespace {

constexpr int64_t kMostInARow = 3;

bool has_bad_norm(const report::StepReport& report) { return report.grad_norm && !std::isfinite(*report.grad_norm); }

}  // namespace

void SpikeRecord::after_step(const report::StepReport& report) {
  file_.clear();
  const bool is_spike = !report.objection.empty() || report.nan;
  if (!is_spike && !has_bad_norm(report)) {
    num_in_a_row_ = 0;
    return;
  }
  ++num_in_a_row_;
  if (num_in_a_row_ <= kMostInARow && job_.grid().rank == 0 && !job_.config().checkpoint.save.empty()) record(report);
  if (is_spike) on_spike_(report);
}

void SpikeRecord::record(const report::StepReport& report) {
  file_ = write_documents(report);
  const std::string reason = !report.objection.empty() ? report.objection
                             : report.nan              ? "the loss is not finite"
                                                       : "the gradient's norm is not finite";
  log_.event("spike", report.step,
             concat(reason, "; samples ", report.consumed_samples - report.global_batch_size, " to ",
                    report.consumed_samples - 1, " of the run",
                    file_.empty() ? "" : concat("; their documents are in ", file_)));
}

std::string SpikeRecord::write_documents(const report::StepReport& report) {
  const Loader& loader = job_.train_loader();
  const int64_t first = report.consumed_samples - report.global_batch_size;
  if (loader.pieces(first).empty()) return "";
  std::string text;
  for (int64_t sample = first; sample < report.consumed_samples; ++sample) {
    text += concat("sample ", sample, "\n");
    for (const data::SamplePiece& piece : loader.pieces(sample)) text += concat("  ", data::describe(piece), "\n");
  }
  const std::string file = concat("spikes/", store::step_folder_name(report.step), ".txt");
  const std::filesystem::path path = std::filesystem::path(job_.config().checkpoint.save) / file;
  try {
    std::error_code unused;  // what cannot be created is reported by the file
    std::filesystem::create_directories(path.parent_path(), unused);
    write_file_atomically(path, text);
  } catch (const UserError& error) {
    log_warning("the documents of step ", report.step, " are not recorded: ", error.what());
    return "";
  }
  return file;
}

}  // namespace espalier::train
