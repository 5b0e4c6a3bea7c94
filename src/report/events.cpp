#include "report/events.h"

#include <chrono>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "report/appended_file.h"

namespace espalier::report {
namespace {

// A file is here as long as something waits for it: other processes write it as well, and it may be moved.
struct LateEvents {
  std::mutex mutex;
  std::map<std::filesystem::path, AppendedFile> files;
};

LateEvents& late_events() {
  static LateEvents events;  // destroyed at the end: then its files try once more
  return events;
}

std::filesystem::path file_in(const std::filesystem::path& run_folder) { return run_folder / "events.jsonl"; }

}  // namespace

void record_event(const std::filesystem::path& run_folder, const std::string& event, int64_t step,
                  const std::string& detail) {
  using Json = nlohmann::ordered_json;
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  const Json json = {{"time", now}, {"event", event}, {"step", step}, {"detail", detail}};
  LateEvents& late = late_events();
  const std::lock_guard lock(late.mutex);
  const auto [file, is_new] =
      late.files.try_emplace(file_in(run_folder), file_in(run_folder), "", AppendedFile::Opening::kWithFirstRecord);
  file->second.append(json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  if (file->second.num_waiting() == 0)
    late.files.erase(file);
  else
    log_warning("this event waits to be recorded: ", event, " at step ", step, ": ", detail);
}

void write_late_events() {
  LateEvents& late = late_events();
  const std::lock_guard lock(late.mutex);
  for (auto file = late.files.begin(); file != late.files.end();) {
    file->second.try_again();
    file = file->second.num_waiting() == 0 ? late.files.erase(file) : std::next(file);
  }
}

bool has_late_events(const std::filesystem::path& run_folder) {
  LateEvents& late = late_events();
  const std::lock_guard lock(late.mutex);
  return late.files.contains(file_in(run_folder));
}

}  // namespace espalier::report
