#include "report/log_line.h"

#include <algorithm>
#include <cmath>

#include "base/format.h"

namespace espalier::report {

void LogLine::add(const StepReport& report) {
  last_ = report;
  ++num_steps_;
  num_skipped_ += report.skipped;
  num_nan_ += report.nan;
  seconds_ += report.step_seconds;
  samples_ += static_cast<double>(report.global_batch_size);
  hardware_flops_ += report.hardware_flops;
  for (size_t loss = 0; loss < report.losses.size(); ++loss) {
    const std::string& name = report.losses[loss].name;
    auto of_name =
        std::find_if(loss_sums_.begin(), loss_sums_.end(), [&](const LossSum& one) { return one.name == name; });
    if (of_name == loss_sums_.end()) of_name = loss_sums_.insert(loss_sums_.end(), LossSum{.name = name});
    if (!report.skipped) {
      of_name->sum += report.losses[loss].value;
      ++of_name->num_steps;
    }
    for (const NamedLoss::BySource& source : report.losses[loss].by_source) {
      Source& total = sources_[{source.source, name == loss_sums_.front().name ? "" : " " + name}];
      total.sum += source.value * source.num_tokens;
      total.tokens += source.num_tokens;
    }
  }
}

std::string LogLine::take() {
  const double seconds_per_step = seconds_ / static_cast<double>(num_steps_);
  std::string line = format_printf(
      " iteration %8lld/%8lld | consumed samples: %12lld | consumed tokens: %12lld | elapsed time per iteration (s): "
      "%.2f |"
      " learning rate: %.3E | global batch size: %5lld |",
      static_cast<long long>(last_.step), static_cast<long long>(last_.num_steps),
      static_cast<long long>(last_.consumed_samples), static_cast<long long>(last_.consumed_tokens), seconds_per_step,
      last_.next_learning_rate, static_cast<long long>(last_.global_batch_size));
  for (const LossSum& loss : loss_sums_) {
    const double mean = loss.sum / static_cast<double>(std::max<int64_t>(1, loss.num_steps));
    if (mean > 0) line += format_printf(" %s: %.6E |", loss.name.c_str(), mean);
  }
  if (last_.loss_scale) line += format_printf(" loss scale: %.1f |", *last_.loss_scale);
  if (last_.grad_norm) line += format_printf(" grad norm: %.3f |", *last_.grad_norm);
  if (last_.num_zeros) line += format_printf(" num zeros: %.1f |", static_cast<double>(*last_.num_zeros));
  if (last_.params_norm) line += format_printf(" params norm: %.3f |", *last_.params_norm);
  if (last_.curriculum_length)
    line += format_printf(" curriculum seqlen: %5lld |", static_cast<long long>(*last_.curriculum_length));
  if (last_.max_attention_logit) line += format_printf(" max attention logit: %.3f |", *last_.max_attention_logit);
  line += format_printf(
      " number of skipped iterations: %3lld | number of nan iterations: %3lld | samples per second: %.3f | TFLOPs: "
      "%.2f |",
      static_cast<long long>(num_skipped_), static_cast<long long>(num_nan_), samples_ / seconds_,
      hardware_flops_ / seconds_ / static_cast<double>(last_.num_ranks) / 1e12);  // of one process, as in BLOOM's log
  num_steps_ = num_skipped_ = num_nan_ = 0;
  seconds_ = samples_ = hardware_flops_ = 0;
  loss_sums_.clear();
  return line;
}

std::string LogLine::take_by_source() {
  std::string line;
  if (!sources_.empty() && sources_.begin()->first.first != sources_.rbegin()->first.first) {
    line = " loss by data set |";
    for (const auto& [name, source] : sources_)
      if (source.tokens > 0)
        line += format_printf(" %s%s: %.6E |", name.first.c_str(), name.second.c_str(), source.sum / source.tokens);
  }
  sources_.clear();
  return line;
}

double perplexity(double loss) { return std::exp(std::min(loss, 20.0)); }  // NaN stays NaN

std::string memory_line(const StepReport& report) {
  if (!report.gpu_memory) return "";
  constexpr double kMega = 1 << 20;
  const GpuMemory& memory = *report.gpu_memory;
  return format_printf(
      "[Rank 0] (after %lld iterations) memory (MB) | allocated: %.1f | max allocated: %.1f | reserved: %.1f | max "
      "reserved: %.1f",
      static_cast<long long>(report.step), static_cast<double>(memory.allocated) / kMega,
      static_cast<double>(memory.peak_allocated) / kMega, static_cast<double>(memory.reserved) / kMega,
      static_cast<double>(memory.peak_reserved) / kMega);
}

std::string evaluation_block(const std::string& set_name, const std::string& when,
                             const std::vector<NamedLoss>& losses) {
  std::string text = set_name + " loss at " + when + " | ";
  for (const NamedLoss& loss : losses) {
    text += format_printf("%s value: %.6E | ", loss.name.c_str(), loss.value);
    if (!loss.is_measure) text += format_printf("%s PPL: %.6E | ", loss.name.c_str(), perplexity(loss.value));
    if (loss.bits_per_byte) text += format_printf("bits per byte: %.6E | ", *loss.bits_per_byte);
  }
  const std::string rule(text.size() + 1, '-');
  return rule + "\n" + text + "\n" + rule;
}

}  // namespace espalier::report
