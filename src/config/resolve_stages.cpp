// --data-stages, --packing and --seq-length-stages.
#include "base/format.h"
#include "config/internal/resolver.h"
#include "plan/batch_ramp.h"

namespace espalier::config::internal {

// A batch has one length, which ranks share out.
void Resolver::check_truncated_length(const std::string& where, const data::StageStart& start, int64_t length) {
  if (start.unit != data::StageUnit::kSteps && start.amount > 0)
    problems_.add(where, ": the samples of a batch have one length; give in steps where it changes");
  if (length > config_.data.sequence_length)
    problems_.add(where, " is longer than ", origin("--seq-length"), ", the length of samples");
  const int64_t parts = config_.grid.context * (config_.parallel.sequence_parallel ? config_.grid.tensor : 1);
  if (length % parts != 0)
    problems_.add(where, " is not a multiple of the ", parts, " ranks that share a sequence; use ",
                  multiples_near(length, parts));
}

void Resolver::resolve_length_stages() {
  DataConfig& data = config_.data;
  const bool truncates = data.seq_length_stages_by == LengthBy::kTruncating;
  int64_t before = -1;
  for (const std::string& text : data.seq_length_stages) {
    const std::string where = concat(origin("--seq-length-stages"), ": '", text, "'");
    try {
      const auto [start, length] = data::parse_length_stage(text);
      const int64_t first = first_sample_of(config_, start);
      if (first <= before)
        problems_.add(where, " begins at sample ", format_count(first), ", and the stage before it at ",
                      format_count(before), ". Write them in the order of the run");
      if (truncates)
        check_truncated_length(where, start, length);
      else if (length > data.sequence_length)
        problems_.add(where, " is longer than ", origin("--seq-length"), ", the length of samples");
      else if (data.sequence_length % length != 0)
        problems_.add(where, " does not divide ", origin("--seq-length"), ", of which a sample has several; use ",
                      divisors_near(length, data.sequence_length), ", or --seq-length-stages-by truncating");
      before = first;
      data.length_stages.push_back({first, length, truncates});
    } catch (const UserError& error) {
      problems_.add(origin("--seq-length-stages"), ": ", error.what());
    }
  }
}

// --train-tokens counts what is read of truncated samples.
void Resolver::end_by_truncated_tokens() {
  TrainingConfig& training = config_.training;
  const auto& ramp = training.rampup_batch_size;
  const int64_t batch = *training.global_batch_size;
  const plan::BatchRamp sizes =
      ramp.empty() ? plan::BatchRamp(batch) : plan::BatchRamp(ramp[0], ramp[1], ramp[2], batch);
  int64_t tokens = 0, samples = 0;
  training.num_steps = 0;
  while (training.num_steps < training.scheduled_steps && tokens < *training.train_tokens) {
    const int64_t of_step = sizes.global_batch_size(samples);
    tokens += of_step * tokens_of_sample(config_, samples);
    samples += of_step;
    ++training.num_steps;
  }
}

// What the stages of --data-stages say is data::plan_data()'s to check.
void Resolver::resolve_stages() {
  const DataConfig& data = config_.data;
  for (const char* name : {"--data-stages", "--packing", "--seq-length-stages"})
    if (is_said(name) && !config_.family->reads_running_text)
      problems_.add(origin(name), " is for running text, and ", config_.family->display,
                    " reads samples of another kind. Leave it out");
  if (data.sample_order == data::OrderKind::kImplicit && !config_.family->reads_running_text)
    problems_.add(origin("--sample-order"), ": implicit is for running text, and ", config_.family->display,
                  " reads samples of another kind. Leave it out");
  if (!data.data_stages.empty() && data.dataloader_type == DataloaderType::kCyclic)
    problems_.add("--data-stages and --dataloader-type cyclic exclude each other: cyclic shuffles the samples of all ",
                  "stages together. Leave one out");
  config_.data.length_stages.clear();
  if (!config_.training.global_batch_size || data.sequence_length <= 0 || !ramp_is_good_) return;
  resolve_length_stages();
  const bool truncates = !data.length_stages.empty() && data.length_stages.front().truncates;
  if (truncates && config_.training.train_tokens) end_by_truncated_tokens();
}

}  // namespace espalier::config::internal
