#include "report/tensorboard_tags.h"

#include "report/log_line.h"

namespace espalier::report {

TensorBoardLog::TensorBoardLog(const std::filesystem::path& directory, const LoggingConfig& config)
    : writer_(directory), config_(config) {}

void TensorBoardLog::start(int64_t step, int64_t num_ranks,
                           const std::vector<std::pair<std::string, std::string>>& options) {
  // The drop to 0 marks the restart, as in Megatron.
  writer_.add_scalar("iteration-time/world_size", static_cast<double>(num_ranks), step);
  writer_.add_scalar("iteration-time/world_size", 0, step + 1);
  for (const auto& [name, value] : options) writer_.add_text(name, value, step);
}

void TensorBoardLog::three(const std::string& tag, double value, const Position& at) {
  writer_.add_scalar(tag, value, at.step);
  writer_.add_scalar(tag + " vs samples", value, at.consumed_samples);
  writer_.add_scalar(tag + " vs tokens", value, at.consumed_tokens);
}

void TensorBoardLog::step(const StepReport& report) {
  if (report.step % config_.tensorboard_log_interval != 0) return;
  const Position at{report.step, report.consumed_samples, report.consumed_tokens};
  const auto step = static_cast<double>(at.step);
  writer_.add_scalar("steps-vs-samples/y=steps,x=samples", step, at.consumed_samples);
  writer_.add_scalar("steps-vs-samples/y=samples,x=steps", static_cast<double>(at.consumed_samples), at.step);
  writer_.add_scalar("steps-vs-tokens/y=steps,x=tokens", step, at.consumed_tokens);
  writer_.add_scalar("steps-vs-tokens/y=tokens,x=steps", static_cast<double>(at.consumed_tokens), at.step);
  if (config_.log_learning_rate_to_tensorboard) three("learning-rate/learning-rate", report.next_learning_rate, at);
  if (report.weight_decay) three("weight-decay/weight-decay", *report.weight_decay, at);
  if (config_.log_batch_size_to_tensorboard) {
    writer_.add_scalar("batch-size/batch-size", static_cast<double>(report.global_batch_size), at.step);
    writer_.add_scalar("batch-size/batch-size vs samples", static_cast<double>(report.global_batch_size),
                       at.consumed_samples);
  }
  for (const NamedLoss& loss : report.losses) {
    three("lm-loss-training/" + loss.name, loss.value, at);
    if (loss.by_source.size() < 2) continue;
    for (const NamedLoss::BySource& source : loss.by_source)
      three("lm-loss-training/" + loss.name + "/" + source.source, source.value, at);
  }
  if (config_.log_loss_scale_to_tensorboard && report.loss_scale)
    three("loss-scale/loss-scale", *report.loss_scale, at);
  if (report.grad_norm) three("grad-norm/grad-norm", *report.grad_norm, at);
  if (report.num_zeros) three("num-zeros/num-zeros", static_cast<double>(*report.num_zeros), at);
  if (report.params_norm) three("params-norm/params-norm", *report.params_norm, at);
  if (report.curriculum_length)
    writer_.add_scalar("curriculum_seqlen", static_cast<double>(*report.curriculum_length), at.step);
  if (report.max_attention_logit) three("max-attention-logit/max-attention-logit", *report.max_attention_logit, at);
  if (config_.log_timers_to_tensorboard) timing(report, at);
}

void TensorBoardLog::timing(const StepReport& report, const Position& at) {
  const auto samples = static_cast<double>(report.global_batch_size);
  const double tokens = samples * static_cast<double>(report.sequence_length), seconds = report.step_seconds;
  const auto replicas = static_cast<double>(report.num_replicas), ranks = static_cast<double>(report.num_ranks);
  three("iteration-time/iteration-time", seconds, at);
  writer_.add_scalar("iteration-time/samples per second", samples / seconds, at.step);
  writer_.add_scalar("iteration-time/samples per second per replica", samples / seconds / replicas, at.step);
  writer_.add_scalar("iteration-time/tokens per second", tokens / seconds, at.step);
  writer_.add_scalar("iteration-time/tokens per second per replica", tokens / seconds / replicas, at.step);
  writer_.add_scalar("iteration-time/TFLOPs per gpu (estimated)", report.hardware_flops / seconds / ranks / 1e12,
                     at.step);
}

void TensorBoardLog::evaluation(const std::string& set_name, const std::vector<NamedLoss>& losses, const Position& at) {
  for (const NamedLoss& loss : losses) {
    const std::string tag = "lm-loss-validation/" + set_name + "/" + loss.name + " validation";
    three(tag, loss.value, at);
    if (config_.log_validation_ppl_to_tensorboard && !loss.is_measure) three(tag + " ppl", perplexity(loss.value), at);
    if (loss.bits_per_byte)
      three("lm-loss-validation/" + set_name + "/bits per byte validation", *loss.bits_per_byte, at);
  }
}

}  // namespace espalier::report
