#include "report/run_log.h"

#include <cmath>
#include <ctime>

#include "base/format.h"
#include "base/kept_log.h"
#include "base/log.h"
#include "report/events.h"

namespace espalier::report {
namespace {

std::vector<std::pair<std::string, std::string>> option_texts(const OptionTable& table) {
  std::vector<std::pair<std::string, std::string>> texts;
  for (const auto& option : table.options())
    if (option->effect() == OptionEffect::kUsed) texts.emplace_back(option->key(), join(option->values(), " "));
  return texts;
}

constexpr double kSmoothing = 0.9;  // weight of the past in the step time on which "time left" rests

}  // namespace

std::string datetime_line(const std::string& what) {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", std::localtime(&now));
  return concat("[", what, "] datetime: ", text, " ");
}

RunLog::RunLog(const LoggingConfig& config, const std::string& folder, const OptionTable& table, int64_t num_ranks,
               int64_t first_step, bool writes)
    : config_(config), folder_(folder), writes_(writes) {
  if (!writes) return;
  const std::filesystem::path save = folder;
  if (!save.empty()) {
    metrics_.emplace(save);
    keep_log(save / "log.txt");  // to the end of the process: what ends it is told after this object is gone
  }
  if (!config.tensorboard_dir.empty())
    tensorboard_.emplace(config.tensorboard_dir, config);
  else if (!save.empty())
    tensorboard_.emplace(save / "tensorboard", config);
  if (tensorboard_) tensorboard_->start(first_step, num_ranks, option_texts(table));
}

void RunLog::step(const StepReport& report) {
  if (!writes_) return;
  if (report.lr_phase != lr_phase_) {
    lr_phase_ = report.lr_phase;
    log_info("learning rate: phase ", lr_phase_, " from step ", format_count(report.step), " on");
  }
  line_.add(report);
  if (metrics_) metrics_->step(report);
  write_late_events(Recorder::kRun);
  if (tensorboard_) tensorboard_->step(report);
  smoothed_seconds_ = smoothed_seconds_ == 0 ? report.step_seconds
                                             : kSmoothing * smoothed_seconds_ + (1 - kSmoothing) * report.step_seconds;
  if (report.step % config_.log_interval == 0) {
    flush();
    show_memory_once(report);
  }
  show_live_line(report);
}

void RunLog::flush() {
  if (line_.empty()) return;
  log_info(line_.take());
  const std::string by_source = line_.take_by_source();
  if (!by_source.empty()) log_info(by_source);
}

// As in Megatron: after the first line, when all that a step needs has been allocated.
void RunLog::show_memory_once(const StepReport& report) {
  if (memory_shown_ || !report.gpu_memory) return;
  memory_shown_ = true;
  log_info(memory_line(report));
}

void RunLog::show_live_line(const StepReport& report) {
  const double left = static_cast<double>(report.num_steps - report.step) * smoothed_seconds_;
  const auto tokens = static_cast<double>(report.global_batch_size * report.sequence_length);
  set_live_line(format_printf("step %s of %s (%.0f%%), loss %.4f, lr %.2e%s, %.0f tokens/s, %.3f TFLOP/s, %s left",
                              format_count(report.step).c_str(), format_count(report.num_steps).c_str(),
                              100.0 * static_cast<double>(report.step) / static_cast<double>(report.num_steps),
                              report.losses.empty() ? NAN : report.losses[0].value, report.learning_rate,
                              report.grad_norm ? format_printf(", grad norm %.3f", *report.grad_norm).c_str() : "",
                              tokens / report.step_seconds, report.model_flops / report.step_seconds / 1e12,
                              format_duration(left).c_str()));
}

void RunLog::evaluation(const Evaluated& what, const std::vector<MetricsFile::SetLosses>& sets,
                        const TensorBoardLog::Position& at) {
  for (const MetricsFile::SetLosses& set : sets) {
    log_info(evaluation_block(set.name, what.when, set.losses));
    if (tensorboard_) tensorboard_->evaluation(set.name, set.losses, at);
  }
  if (metrics_) metrics_->evaluation(at.step, what.kind, sets, what.at_end);
}

void RunLog::tasks(int64_t step, const std::vector<TaskFigure>& figures) {
  std::string line = concat("tasks at iteration ", step, " |");
  for (const TaskFigure& figure : figures)
    line += concat(" ", figure.task, " ", figure.metric, ": ", format_printf("%.4f", figure.value), " |");
  log_info(line);
  if (metrics_) metrics_->tasks(step, figures);
}

void RunLog::epoch(int64_t step, const std::vector<MetricsFile::SetLosses>& sets) {
  if (metrics_) metrics_->evaluation(step, "epoch", sets);
}

void RunLog::event(const std::string& name, int64_t step, const std::string& detail) {
  if (writes_ && !folder_.empty()) record_event(folder_, name, step, detail);
}

}  // namespace espalier::report
