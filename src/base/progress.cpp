#include "base/progress.h"

#include <system_error>

#include "base/console.h"
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
      start_(std::chrono::steady_clock::now()) {
  if (log_level() < LogLevel::kInfo) return;
  try {
    printer_ = std::thread([this] { print_by_time(); });
  } catch (const std::system_error& error) {  // the work itself does not need it
    log_warning("no progress is shown for '", title_, "': cannot start a thread: ", error.code().message());
  }
}

Progress::~Progress() {
  stop_printing();
  if (shown_) set_live_line("");
}

double Progress::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

Progress::Facts Progress::facts() const { return {title_, item_, note_, unit_, done_, total_, seconds()}; }

std::string Progress::line(const Facts& facts, size_t columns) {
  const int64_t done = facts.done, total = facts.total;
  const double rate = facts.seconds > 0 ? static_cast<double>(done) / facts.seconds : 0;
  const bool bytes = facts.unit == Unit::kBytes;
  const auto amount = [&](int64_t value) {
    return bytes ? format_printf("%.1f MB", static_cast<double>(value) / 1e6) : format_count(value);
  };
  const auto joined = [&](bool with_rate, bool with_amounts, bool with_note) {
    std::string text = facts.title + ":";
    if (with_amounts || total <= 0) text += " " + amount(done);
    if (with_amounts && total > 0) text += " of " + amount(total);
    if ((with_amounts || total <= 0) && !bytes && !facts.item.empty()) text += " " + facts.item;
    if (total > 0) {
      const std::string share = format_printf("%.0f%%", 100.0 * static_cast<double>(done) / static_cast<double>(total));
      text += with_amounts ? " (" + share + ")" : " " + share;
    }
    if (with_rate)
      text += bytes ? format_printf(", %.1f MB/s", rate / 1e6) : format_printf(", %.*f/s", rate < 100 ? 1 : 0, rate);
    if (with_note && !facts.note.empty()) text += ", " + facts.note;
    if (total > done && rate > 0)
      text += ", " + format_duration(static_cast<double>(total - done) / rate) + " left";
    else if (done == 0 || total <= 0)
      text += ", " + format_duration(facts.seconds) + " so far";
    return text;
  };
  for (const int kept : {3, 2, 1}) {
    std::string text = joined(kept >= 1, kept >= 2, kept >= 3);
    if (text.size() <= columns) return text;
  }
  return joined(false, false, false);
}

// In a thread of its own, so that work that stands still is seen to stand still.
void Progress::print_by_time() {
  double next = kFirstPrintSeconds;
  std::unique_lock lock(mutex_);
  while (!stop_.wait_until(lock, start_ + std::chrono::duration<double>(next), [this] { return stopping_; })) {
    shown_ = true;
    if (stderr_is_terminal())
      set_live_line(line(facts(), terminal_columns() - 1));
    else
      log_info(line(facts(), SIZE_MAX));
    next = seconds() + print_interval_seconds();
  }
}

void Progress::stop_printing() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  if (printer_.joinable()) printer_.join();
}

void Progress::set_note(const std::string& note) {
  const std::lock_guard lock(mutex_);
  note_ = note;
}

void Progress::finish(const std::string& summary) {
  stop_printing();
  if (!shown_) return;
  shown_ = false;
  set_live_line("");
  Facts last = facts();
  log_info(line(last, SIZE_MAX), total_ > 0 ? concat(", took ", format_duration(last.seconds)) : "",
           summary.empty() ? "" : ", ", summary);
}

}  // namespace espalier
