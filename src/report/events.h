// events.jsonl of a run folder: {"time", "event", "step", "detail"}, a line each: starts, alerts, failed saves, stops,
// errors. Ranks, the launcher and `espalier watch` append to the same file.
//
// An event that cannot be written (a full disk, a file system that is away) waits in the process that recorded it, as
// AppendedFile has it, and is written with the time at which it was recorded, before later ones: with the next event,
// with write_late_events(), or at the end of the process, which says what is lost.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace espalier::report {

// Of any thread, as those below.
void record_event(const std::filesystem::path& run_folder, const std::string& event, int64_t step,
                  const std::string& detail);

// Whoever may record events calls it now and then. Where nothing waits it costs next to nothing.
void write_late_events();
bool has_late_events(const std::filesystem::path& run_folder);

}  // namespace espalier::report
