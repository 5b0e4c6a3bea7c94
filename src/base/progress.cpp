#include "base/progress.h"

#include "base/format.h"
#include "base/log.h"

namespace espalier {
namespace {
constexpr double kFirstPrintSeconds = 2.0;
double print_interval_seconds() { return stderr_is_terminal() ? 0.1 : 10.0; }
}  // namespace

Progress::Progress(std::string title, int64_t total, Unit unit, std::string item)
    : title_(std::move(title)),
      item_(std::move(item)),
      total_(total),
      unit_(unit),
      start_(std::chrono::steady_clock::now()),
      next_print_(kFirstPrintSeconds) {}

Progress::~Progress() {
  if (!finished_ && shown_) set_live_line("");
}

double Progress::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

std::string Progress::line(double seconds) const {
  const int64_t done = done_, total = total_;
  const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
  std::string text = title_ + ": ";
  const auto amount = [&](int64_t value) {
    return unit_ == Unit::kBytes ? format_printf("%.1f MB", static_cast<double>(value) / 1e6) : format_count(value);
  };
  text += amount(done);
  if (total > 0) text += " of " + amount(total);
  if (unit_ == Unit::kItems && !item_.empty()) text += " " + item_;
  if (total > 0) text += format_printf(" (%.0f%%)", 100.0 * static_cast<double>(done) / static_cast<double>(total));
  text += unit_ == Unit::kBytes ? format_printf(", %.1f MB/s", rate / 1e6)
                                : format_printf(", %.*f/s", rate < 100 ? 1 : 0, rate);
  if (!note_.empty()) text += ", " + note_;
  if (total > done && rate > 0) text += ", " + format_duration(static_cast<double>(total - done) / rate) + " left";
  return text;
}

void Progress::advance(int64_t amount) {
  done_ += amount;
  const double now = seconds();
  if (now < next_print_) return;
  const std::lock_guard lock(mutex_);
  if (now < next_print_) return;
  next_print_ = now + print_interval_seconds();
  shown_ = true;
  if (stderr_is_terminal())
    set_live_line(line(now));
  else
    log_info(line(now));
}

void Progress::set_note(const std::string& note) {
  const std::lock_guard lock(mutex_);
  note_ = note;
}

void Progress::finish(const std::string& summary) {
  const std::lock_guard lock(mutex_);
  finished_ = true;
  if (!shown_) return;
  set_live_line("");
  log_info(line(seconds()), ", took ", format_duration(seconds()), summary.empty() ? "" : ", ", summary);
}

}  // namespace espalier
