#include "train/finite_check.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "base/log.h"

namespace espalier::train {
namespace {

constexpr int64_t kElementsAtOnce = int64_t{1} << 20;
constexpr int64_t kSaidAlone = 3;  // steps in a row that are said one by one

// A sum in double of fp32, bf16 or fp16 numbers is finite exactly if they all are.
bool is_finite(const at::Tensor& values) {
  const at::Tensor flat = values.detach().reshape({-1});
  for (int64_t begin = 0; begin < flat.numel(); begin += kElementsAtOnce) {
    const at::Tensor part = flat.narrow(0, begin, std::min(kElementsAtOnce, flat.numel() - begin));
    if (!std::isfinite(part.to(at::kDouble).sum().item<double>())) return false;
  }
  return true;
}

}  // namespace

std::string tensor_not_finite(const JobState& state) {
  for (const dist::OwnedPiece& piece : state.reducer.pieces())
    if (!is_finite(piece.value)) return piece.param->spec->name;
  std::string found;
  state.optimizer.visit_state([&](const optim::StatePiece& piece) {
    if (found.empty() && !is_finite(piece.values)) found = piece.param->spec->name + "." + piece.kind;
  });
  return found;
}

void FiniteCheck::after_step(const report::StepReport& report) {
  if (!report.nan) {
    num_in_a_row_ = 0;
    first_bad_step_.reset();
    return;
  }
  ++num_in_a_row_;
  if (!first_bad_step_) first_bad_step_ = report.step;
  const bool says = num_in_a_row_ <= kSaidAlone || report.step % job_.config().logging.log_interval == 0;
  const auto bad = std::find_if(report.losses.begin(), report.losses.end(),
                                [](const report::NamedLoss& loss) { return !std::isfinite(loss.value); });
  if (says && bad != report.losses.end())
    log_warning("step ", report.step, ": ", bad->name, " is ",
                std::isnan(bad->value) ? "not a number (NaN)" : "infinite",
                report.skipped ? "; the step changed nothing" : "",
                num_in_a_row_ > 1 ? concat("; so it was in the ", num_in_a_row_ - 1, " steps before") : "");
  if (!report.skipped) check();
}

void FiniteCheck::before_save() {
  if (!job_.config().checkpoint.save.empty()) check();
}

void FiniteCheck::at_end() {
  if (num_in_a_row_ == 0) return;
  throw UserError(
      concat("the run ended with a loss that is no finite number, since step ", *first_bad_step_,
             job_.config().checkpoint.save.empty()
                 ? ": weights and moments are finite, but what they compute is not. Start again"
                 : concat(": weights and moments are finite and were saved, but what they compute is not. Go on from a "
                          "checkpoint before step ",
                          *first_bad_step_),
             " with a smaller --lr, or pass over the samples with --skip-train-iteration-range."),
      kNotFinite);
}

void FiniteCheck::check() {
  const int64_t step = job_.trainer().position().step;
  const std::vector<std::string> found = job_.grid().world.gather_texts(tensor_not_finite(job_.state()));
  const auto bad = std::find_if(found.begin(), found.end(), [](const std::string& name) { return !name.empty(); });
  if (bad == found.end()) return;
  const config::RunConfig& config = job_.config();
  const std::string message =
      concat("after step ", step, " '", *bad, "' holds NaN or infinity",
             first_bad_step_ ? concat(" (the loss is no finite number since step ", *first_bad_step_, ")") : "",
             ": no later step can mend that. The run ends; this state was not saved, older checkpoints are as they "
             "were. Go on "
             "from one of them (--load, --ckpt-step) with a smaller --lr",
             config.optimizer.clip_grad > 0 ? "" : ", with --clip-grad 1 (this run does not clip)",
             ", or pass over the samples with --skip-train-iteration-range.");
  log_.event("alert", step, message);
  throw UserError(message, kNotFinite);
}

}  // namespace espalier::train
