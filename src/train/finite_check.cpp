#include "train/finite_check.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "data/sample_pieces.h"
#include "spec/stored_state.h"
#include "train/finite_values.h"
#include "train/recording.h"

namespace espalier::train {
namespace {

constexpr size_t kDepthDigits = 20;
constexpr int64_t kSaidAlone = 3;  // steps in a row that are reported one by one

// Blocks of moments say it in their scales.
bool holds_numbers(const optim::StatePiece& piece) {
  if (piece.type != spec::StateType::kFp8) return is_finite(piece.values);
  const at::Tensor scales = piece.values.view({-1, spec::kMomentBlockBytes}).select(1, 0);
  return !scales.eq(static_cast<int64_t>(spec::kBlockNotFinite)).any().item<bool>();
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

constexpr size_t kMostDocuments = 3;

// "; token 3 of sample 8 is from document 8 of data/wiki: ..."; empty where the data set does not name documents.
std::string documents_of(const Loader& loader, const BadToken& bad) {
  const std::vector<data::SamplePiece> pieces = loader.pieces(bad.sample);
  const auto held = std::find_if(pieces.begin(), pieces.end(),
                                 [&](const data::SamplePiece& piece) { return holds(loader.source(), piece, bad); });
  if (held != pieces.end())
    return concat("; token ", *bad.token, " of sample ", bad.sample, " is from ", data::describe(*held));
  std::string text;
  for (size_t i = 0; i < std::min(pieces.size(), kMostDocuments); ++i)
    text += concat(i == 0 ? concat("; sample ", bad.sample, " is made of ") : ", and ", data::describe(pieces[i]));
  const size_t num_others = pieces.size() - std::min(pieces.size(), kMostDocuments);
  return num_others == 0 ? text : concat(text, ", and ", num_others, " others");
}

// The first operation of all ranks with a value that is not finite; empty if there is none. Collective.
std::vector<Observation> first_not_finite(Job& job, const std::function<void()>& compute) {
  Recorder recorder(job, Recorder::Keeps::kFirstNotFinite);
  compute();
  std::string own;
  for (const Observation& one : recorder.take()) own = to_json(one);
  std::vector<Observation> found;
  for (const std::string& line : job.grid().world.gather_texts(own))
    if (!line.empty()) found.push_back(observation_from_json(line, "a rank of this run"));
  sort(found);
  if (!found.empty()) found.resize(1, found[0]);
  return found;
}

std::string first_of(const std::vector<std::string>& texts) {
  const auto found = std::find_if(texts.begin(), texts.end(), [](const std::string& text) { return !text.empty(); });
  return found == texts.end() ? "" : *found;
}

}  // namespace

FiniteCheck::FiniteCheck(Job& job, report::RunLog& log, const SpikeRecord& spikes)
    : job_(job), log_(log), spikes_(spikes) {
  job_.trainer().on_not_finite([this](const std::function<void()>& again) { find_origin(again); });
}

FiniteCheck::~FiniteCheck() { job_.trainer().on_not_finite({}); }

// Steps that follow such a step have its origin, or are reported by what they have spoiled.
void FiniteCheck::find_origin(const std::function<void()>& again) {
  origin_.clear();
  if (num_in_a_row_ > 0) return;
  const std::string spoiled = first_of(job_.grid().world.gather_texts(tensor_not_finite(job_.state())));
  const std::vector<Observation> first = first_not_finite(job_, again);
  if (!spoiled.empty()) origin_ = concat("; '", spoiled, "' was not finite before this step");
  if (first.empty()) {
    origin_ += "; computed once more, no operation has such a value: suspect this machine, or the loss alone";
    return;
  }
  origin_ += concat("; first in the ", describe(first[0]), ", where ", describe_not_finite(first[0]));
  if (const auto bad = bad_token(first[0], job_.config().data.sequence_length))
    origin_ += documents_of(job_.train_loader(), *bad);
}

std::string FiniteCheck::samples_of(const report::StepReport& report) const {
  const std::string file = job_.grid().world.gather_texts(spikes_.file())[0];
  return concat("; samples ", report.consumed_samples - report.global_batch_size, " to ", report.consumed_samples - 1,
                " of the run", file.empty() ? "" : concat(" (their documents are in ", file, ")"));
}

std::string tensor_not_finite(const JobState& state) {
  for (const dist::OwnedPiece& piece : state.reducer.pieces())
    if (!is_finite(piece.value)) return piece.param->spec->name;
  std::string found;
  state.optimizer.visit_state([&](const optim::StatePiece& piece) {
    if (found.empty() && !holds_numbers(piece)) found = piece.param->spec->name + "." + piece.kind;
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
  what += report.nan ? origin_ : where_gradients_begin();
  if (num_in_a_row_ <= kSaidAlone) what += samples_of(report);
  if (!first_bad_) first_bad_ = {report.step, what};
  if (num_in_a_row_ <= kSaidAlone || report.step % job_.config().logging.log_interval == 0)
    log_warning("step ", report.step, ": ", what, report.skipped ? "; the step changed nothing" : "",
                num_in_a_row_ == 2  ? std::string("; so it was in the step before")
                : num_in_a_row_ > 2 ? concat("; so it was in the ", num_in_a_row_ - 1, " steps before")
                                    : std::string());
  // Steps that change nothing leave what the first of them has found.
  if (!report.skipped || num_in_a_row_ == 1) check();
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
  const std::string bad = first_of(found);
  if (bad.empty()) return;
  const std::string message =
      concat("after step ", step, " '", bad, "' holds NaN or infinity",
             first_bad_ ? concat(" (since step ", first_bad_->step, ": ", first_bad_->what, ")") : "",
             ": no later step can fix that. ", advice());
  log_.event("alert", step, message);
  throw UserError(message, kNotFinite);
}

}  // namespace espalier::train
