#include "report/journal.h"

#include <algorithm>
#include <charconv>
#include <ctime>
#include <fstream>
#include <string_view>

#include "base/error.h"
#include "base/format.h"

namespace espalier::report {
namespace {

struct StepLine {
  int64_t step = 0;
  double seconds = 0;
};

template <class Number>
std::optional<Number> number_after(std::string_view line, std::string_view key) {
  const size_t at = line.find(key);
  if (at == std::string_view::npos) return std::nullopt;
  Number number{};
  const char* const begin = line.data() + at + key.size();
  if (std::from_chars(begin, line.data() + line.size(), number).ec != std::errc()) return std::nullopt;
  return number;
}

std::vector<StepLine> read_steps(const std::filesystem::path& file) {
  std::vector<StepLine> steps;
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    const auto step = number_after<int64_t>(line, "{\"step\":");
    const auto seconds = number_after<double>(line, "\"step_seconds\":");
    if (step && seconds) steps.push_back({*step, *seconds});
  }
  return steps;
}

double median_seconds(const std::vector<StepLine>& steps) {
  if (steps.empty()) return 0;
  std::vector<double> seconds;
  for (const StepLine& step : steps) seconds.push_back(step.seconds);
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

bool ends_attempt(const RunEvent& event) {
  return event.event == "end" || event.event == "stop" || event.event == "error" || event.event == "failure" ||
         event.event == "hang";
}

std::vector<Attempt> attempts_of(const std::vector<RunEvent>& events) {
  std::vector<Attempt> attempts;
  for (const RunEvent& event : events) {
    if (event.event == "start") {
      attempts.push_back({.start = event.time, .first_step = event.step, .last_step = event.step});
      continue;
    }
    if (attempts.empty()) continue;
    Attempt& attempt = attempts.back();
    attempt.events.push_back(event);
    if (ends_attempt(event) && !attempt.end) attempt.end = event.time;
  }
  return attempts;
}

// Steps that follow one another, of one attempt.
struct Stretch {
  int64_t first = 0, last = 0;
};

// Of steps that were set aside, when attempts began before them.
std::vector<Stretch> stretches_of(const std::vector<StepLine>& steps, const std::vector<Attempt>& attempts) {
  const auto begins_after = [&](int64_t step) {
    return std::any_of(attempts.begin(), attempts.end(),
                       [step](const Attempt& attempt) { return attempt.first_step == step; });
  };
  std::vector<Stretch> stretches;
  for (const StepLine& line : steps) {
    if (stretches.empty() || line.step != stretches.back().last + 1 || begins_after(line.step - 1))
      stretches.push_back({line.step, line.step});
    stretches.back().last = line.step;
  }
  return stretches;
}

// What each attempt but the first found beyond its own beginning, it set aside, in this order.
void find_lost_steps(const std::vector<StepLine>& aside, std::vector<Attempt>& attempts) {
  const std::vector<Stretch> stretches = stretches_of(aside, attempts);
  size_t next = 0;
  for (size_t at = 0; at + 1 < attempts.size(); ++at) {
    Attempt& attempt = attempts[at];
    attempt.last_step = attempts[at + 1].first_step;
    if (next == stretches.size() || stretches[next].first != attempt.last_step + 1) continue;
    attempt.last_step = stretches[next++].last;
    // A beginning of another attempt that fell into it.
    while (next < stretches.size() && stretches[next].first == attempt.last_step + 1 &&
           (at + 2 >= attempts.size() || attempts[at + 2].first_step != attempt.last_step))
      attempt.last_step = stretches[next++].last;
    attempt.steps_lost = attempt.last_step - attempts[at + 1].first_step;
  }
}

std::string time_text(double seconds, const char* format) {
  const auto whole = static_cast<std::time_t>(seconds);
  std::tm parts{};
  gmtime_r(&whole, &parts);
  char text[64];
  return {text, std::strftime(text, sizeof(text), format, &parts)};
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string cost_text(const Attempt& attempt) {
  std::string text;
  if (attempt.steps_lost > 0) text = format_counted(attempt.steps_lost, "step") + " done again";
  if (attempt.seconds_down > 0)
    text += concat(text.empty() ? "" : ", ", format_duration(attempt.seconds_down), " down");
  return text.empty() ? "nothing" : text;
}

std::string share_text(double seconds, double all) {
  return concat(format_duration(seconds), format_printf(" (%.1f %%)", 100 * seconds / all));
}

std::string summary_text(const Journal& journal) {
  const double all = journal.end - journal.begin,
               lost = static_cast<double>(journal.steps_lost) * journal.median_step_seconds;
  std::string text = concat("From ", time_text(journal.begin, "%Y-%m-%d %H:%M:%S"), " to ",
                            time_text(journal.end, "%Y-%m-%d %H:%M:%S"), " UTC, ", format_duration(all), ": ",
                            format_counted(static_cast<int64_t>(journal.attempts.size()), "attempt"), ", ",
                            format_counted(journal.steps_kept, "step"), " kept.\n");
  if (!journal.effective_share()) return text;
  text +=
      concat("\n| time | |\n|---|---|\n| effective: the steps kept, at the median of ",
             format_printf("%.3g", journal.median_step_seconds), " s | ", share_text(journal.effective_seconds(), all),
             " |\n| lost: steps done again (", format_count(journal.steps_lost), ") | ", share_text(lost, all),
             " |\n| lost: between attempts | ", share_text(journal.seconds_down, all),
             " |\n| starting, evaluations, saves, slower steps | ",
             share_text(std::max(0.0, all - journal.effective_seconds() - lost - journal.seconds_down), all), " |\n");
  return text;
}

}  // namespace

std::optional<double> Journal::effective_share() const {
  if (median_step_seconds <= 0 || end <= begin) return std::nullopt;
  return effective_seconds() / (end - begin);
}

Journal read_journal(const Run& run) {
  Journal journal;
  journal.attempts = attempts_of(run.events);
  if (journal.attempts.empty()) return journal;
  const std::vector<StepLine> steps = read_steps(run.folder / "metrics.jsonl");
  find_lost_steps(read_steps(run.folder / "metrics.superseded.jsonl"), journal.attempts);
  if (!steps.empty())
    journal.attempts.back().last_step = std::max(journal.attempts.back().last_step, steps.back().step);
  journal.median_step_seconds = median_seconds(steps);
  journal.begin = journal.attempts.front().start;
  journal.end = std::max({journal.begin, run.events.back().time, run.changed.value_or(0)});
  for (size_t at = 0; at + 1 < journal.attempts.size(); ++at) {
    Attempt& attempt = journal.attempts[at];
    const Attempt& next = journal.attempts[at + 1];
    attempt.seconds_down = attempt.end ? std::max(0.0, next.start - *attempt.end) : 0;
    journal.steps_lost += attempt.steps_lost;
    journal.seconds_down += attempt.seconds_down;
  }
  journal.steps_kept = journal.attempts.back().last_step - journal.attempts.front().first_step;
  return journal;
}

std::string journal_text(const Run& run, const Journal& journal) {
  std::string text = concat(kJournalHead, run.folder.string(), "\n\n");
  if (journal.attempts.empty()) return text + "No start is recorded.\n";
  text += summary_text(journal);
  for (size_t at = 0; at < journal.attempts.size(); ++at) {
    const Attempt& attempt = journal.attempts[at];
    text += concat("\n## Attempt ", at + 1, ", ", time_text(attempt.start, "%Y-%m-%d %H:%M:%S"), "\n\nFrom step ",
                   format_count(attempt.first_step), " to ", format_count(attempt.last_step), ".\n");
    if (!attempt.events.empty()) text += "\n";
    for (const RunEvent& event : attempt.events)
      text += concat("- ", time_text(event.time, "%H:%M:%S"), ", ", event.event,
                     event.step >= 0 ? concat(" at step ", format_count(event.step)) : std::string(),
                     event.detail.empty() ? "" : ": ", first_line(event.detail), "\n");
    if (at + 1 < journal.attempts.size()) text += concat("\nIts end cost ", cost_text(attempt), ".\n");
  }
  return text;
}

}  // namespace espalier::report
