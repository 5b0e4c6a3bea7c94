// What happened to a run, attempt by attempt, and what it cost: from events.jsonl, metrics.jsonl, and the records that
// a later attempt has set aside (metrics.superseded.jsonl).
//
// Effective time is the number of steps that the run kept, times the median time of a step; its share of the time since
// the first start is the run's ETTR (effective training time ratio). Lost is what was trained twice, and the time
// between an attempt's end and the next one's start; the rest went into starting, evaluations, saves and slow steps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/run_reader.h"

namespace espalier::report {

struct Attempt {
  double start = 0;                       // seconds since 1970
  int64_t first_step = 0, last_step = 0;  // after which it began; that it recorded
  std::optional<double> end;              // where something says so
  std::vector<RunEvent> events;           // after "start", in order
  // Of this attempt's end: steps that the next one did again, and seconds until that began.
  int64_t steps_lost = 0;
  double seconds_down = 0;
};

struct Journal {
  std::vector<Attempt> attempts;
  double begin = 0, end = 0;       // of all; seconds since 1970
  double median_step_seconds = 0;  // 0: no step was recorded
  int64_t steps_kept = 0, steps_lost = 0;
  double seconds_down = 0;

  double effective_seconds() const { return static_cast<double>(steps_kept) * median_step_seconds; }
  std::optional<double> effective_share() const;  // ETTR
};

// Of a run that recorded no start: no attempts.
Journal read_journal(const Run& run);

inline constexpr const char* kJournalHead = "# Journal of ";  // of the page

// A page of Markdown; times are UTC.
std::string journal_text(const Run& run, const Journal& journal);

}  // namespace espalier::report
