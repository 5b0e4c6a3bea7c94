// events.jsonl of a run folder: {"time", "event", "step", "detail"}, a line each: starts, alerts, failed saves, stops,
// errors. Ranks, the launcher and `espalier watch` append to the same file.
//
// An event that cannot be written (a full disk, a file system that is away) waits in the process that recorded it, as
// AppendedFile has it, and is written with the time at which it was recorded, before later ones: with the next event,
// with write_late_events(), or at the end of the process, which says what is lost. It has a member "late" then, true:
// others that came after it may be before it in the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>

namespace espalier::report {

// Of any thread, as those below.
void record_event(const std::filesystem::path& run_folder, const std::string& event, int64_t step,
                  const std::string& detail);

enum class Recorder {
  kRun,    // makes a folder again that somebody removes under it
  kOther,  // a launcher, or watch: what waits for a folder that is gone is given up, with a warning
};
// Whoever may record events calls it now and then. Where nothing waits it costs next to nothing, and where another
// thread is at it, it does nothing.
void write_late_events(Recorder recorder);
// Of those names.
bool has_late_event(const std::filesystem::path& run_folder, std::initializer_list<std::string_view> names);

}  // namespace espalier::report
