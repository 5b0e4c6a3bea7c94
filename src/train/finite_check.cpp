#include "train/finite_check.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "base/log.h"

namespace espalier::train {
namespace {

constexpr int64_t kElementsAtOnce = int64_t{1} << 20;
constexpr size_t kDepthDigits = 20;
constexpr int64_t kSaidAlone = 3;  // steps in a row that are reported one by one

// A sum in double of fp32, bf16 or fp16 numbers is finite exactly if they all are.
bool is_finite(const at::Tensor& values) {
  const at::Tensor flat = values.detach().reshape({-1});
  for (int64_t begin = 0; begin < flat.numel(); begin += kElementsAtOnce) {
    const at::Tensor part = flat.narrow(0, begin, std::min(kElementsAtOnce, flat.numel() - begin));
    if (!std::isfinite(part.to(at::kDouble).sum().item<double>())) return false;
  }
  return true;
}

const char* kind_of(double value) { return std::isnan(value) ? "not a number (NaN)" : "infinite"; }

// The deepest of the parameters of this rank whose gradient is not finite, as depth and name; empty if all are finite.
// Backward passes carry what is wrong from there towards the input.
std::string gradient_not_finite(const JobState& state) {
  const tensor::Param* deepest = nullptr;
  for (const dist::OwnedPiece& piece : state.reducer.pieces())
    if ((deepest == nullptr || piece.param->spec->depth > deepest->spec->depth) && !is_finite(piece.grad))
      deepest = piece.param;
  if (deepest == nullptr) return "";
  const std::string depth = std::to_string(deepest->spec->depth);
  return std::string(kDepthDigits - depth.size(), '0') + depth + deepest->spec->name;
}

// "lm loss is infinite"; empty where losses and norm are finite. An overflow that made fp16's loss scale smaller has no
// norm: it is part of how the scale is found.
std::string not_finite(const report::StepReport& report) {
  const auto bad = std::find_if(report.losses.begin(), report.losses.end(),
                                [](const report::NamedLoss& loss) { return !std::isfinite(loss.value); });
  // A step without targets has a loss of NaN, and nothing is wrong.
  if (report.nan && bad != report.losses.end()) return concat(bad->name, " is ", kind_of(bad->value));
  if (report.grad_norm && !std::isfinite(*report.grad_norm))
    return concat("the gradient's norm is ", kind_of(*report.grad_norm));
  return "";
}

std::string samples_of(const report::StepReport& report) {
  return concat("samples ", report.consumed_samples - report.global_batch_size, " to ", report.consumed_samples - 1,
                " of the run");
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
  std::string what = not_finite(report);
  if (what.empty()) {
    num_in_a_row_ = 0;
    first_bad_.reset();
    return;
  }
  ++num_in_a_row_;
  if (!report.nan) what += where_gradients_begin();
  if (!first_bad_) first_bad_ = {report.step, concat(what, "; ", samples_of(report))};
  if (num_in_a_row_ <= kSaidAlone || report.step % job_.config().logging.log_interval == 0)
    log_warning("step ", report.step, ": ", what, report.skipped ? "; the step changed nothing" : "",
                num_in_a_row_ > 1 ? concat("; so it was in the ", num_in_a_row_ - 1, " steps before") : "");
  if (!report.skipped) check();
}

// The gradients of a loss that is not finite are all alike.
std::string FiniteCheck::where_gradients_begin() {
  const std::vector<std::string> found = job_.grid().world.gather_texts(gradient_not_finite(job_.state()));
  const std::string& deepest = *std::max_element(found.begin(), found.end());
  if (deepest.empty()) return "";
  return concat(", first that of '", deepest.substr(kDepthDigits), "'");
}

void FiniteCheck::before_save() {
  if (!job_.config().checkpoint.save.empty()) check();
}

void FiniteCheck::before_end() {
  if (is_sound()) return;
  check();
  const int64_t step = job_.trainer().position().step;
  throw UserError(
      concat("the run ended at step ", step, " without a finite loss and norm since step ", first_bad_->step, " (",
             first_bad_->what, "): weights and moments are finite, but what they compute is not. ", advice()),
      kNotFinite);
}

std::string FiniteCheck::advice() const {
  const config::RunConfig& config = job_.config();
  return concat(config.checkpoint.save.empty() ? "Start again"
                                               : "The run ends; this state was not saved, older checkpoints are as "
                                                 "they were. Continue from one of them (--load, --ckpt-step)",
                " with a smaller --lr",
                config.optimizer.clip_grad > 0 ? "" : ", with --clip-grad 1 (this run does not clip)",
                ", or skip the samples with --skip-train-iteration-range.");
}

void FiniteCheck::check() {
  const int64_t step = job_.trainer().position().step;
  const std::vector<std::string> found = job_.grid().world.gather_texts(tensor_not_finite(job_.state()));
  const auto bad = std::find_if(found.begin(), found.end(), [](const std::string& name) { return !name.empty(); });
  if (bad == found.end()) return;
  const std::string message =
      concat("after step ", step, " '", *bad, "' holds NaN or infinity",
             first_bad_ ? concat(" (since step ", first_bad_->step, ": ", first_bad_->what, ")") : "",
             ": no later step can fix that. ", advice());
  log_.event("alert", step, message);
  throw UserError(message, kNotFinite);
}

}  // namespace espalier::train
