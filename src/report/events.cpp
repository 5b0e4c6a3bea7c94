#include "report/events.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/format.h"
#include "base/log.h"
#include "report/appended_file.h"

namespace espalier::report {
namespace {

namespace fs = std::filesystem;

constexpr auto kPatienceAtEnd = std::chrono::seconds(5);

struct LateFile {
  explicit LateFile(const fs::path& path) : file(path, "", AppendedFile::Opening::kWithFirstRecord) {}
  void forget_those_done() {
    while (names.size() > file.num_waiting()) names.pop_front();
  }

  AppendedFile file;
  std::deque<std::string> names;  // of the events that wait
};

// A file is here as long as something waits for it: other processes write it as well, and it may be moved.
struct LateEvents {
  std::timed_mutex mutex;
  std::map<fs::path, LateFile> files;
};

void try_at_end();

LateEvents& late_events() {
  static LateEvents* const events = [] {  // never destroyed: a file system may hold a thread in it to the very end
    std::atexit(try_at_end);
    return new LateEvents;
  }();
  return *events;
}

fs::path file_in(const fs::path& run_folder) { return run_folder / "events.jsonl"; }

void give_up_those_of_removed_folders(LateEvents& late) {
  for (auto& [path, waits] : late.files) {
    std::error_code error;
    if (fs::exists(path.parent_path(), error) || error) continue;
    const auto count = static_cast<int64_t>(waits.names.size());
    log_warning("'", path.parent_path().string(), "' was removed: ", format_counted(count, "event"),
                " that waited to be recorded ", count == 1 ? "is" : "are", " lost (",
                join(std::vector<std::string>(waits.names.begin(), waits.names.end()), ", "), ")");
    waits.file.give_up();
    waits.forget_those_done();
  }
}

void try_at_end() {
  LateEvents& late = late_events();
  const std::unique_lock lock(late.mutex, kPatienceAtEnd);
  if (!lock) return log_warning("events that wait to be recorded are lost: their file system does not answer");
  give_up_those_of_removed_folders(late);
  late.files.clear();  // they try once more
}

}  // namespace

void record_event(const fs::path& run_folder, const std::string& event, int64_t step, const std::string& detail) {
  using Json = nlohmann::ordered_json;
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  const auto line_of = [](const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  };
  Json json = {{"time", now}, {"event", event}, {"step", step}, {"detail", detail}};
  const std::string line = line_of(json);
  json["late"] = true;
  LateEvents& late = late_events();
  const std::lock_guard lock(late.mutex);
  const auto [entry, is_new] = late.files.try_emplace(file_in(run_folder), file_in(run_folder));
  LateFile& waits = entry->second;
  waits.file.append(line, line_of(json));
  waits.names.push_back(event);
  waits.forget_those_done();
  if (waits.names.empty())
    late.files.erase(entry);
  else
    log_warning("this event waits to be recorded: ", event, " at step ", step, ": ", detail);
}

void write_late_events(Recorder recorder) {
  LateEvents& late = late_events();
  const std::unique_lock lock(late.mutex, std::try_to_lock);
  if (!lock) return;
  if (recorder == Recorder::kOther) give_up_those_of_removed_folders(late);
  for (auto& [path, waits] : late.files) {
    waits.file.try_again();
    waits.forget_those_done();
  }
  std::erase_if(late.files, [](const auto& entry) { return entry.second.names.empty(); });
}

bool has_late_event(const fs::path& run_folder, std::initializer_list<std::string_view> names) {
  LateEvents& late = late_events();
  const std::lock_guard lock(late.mutex);
  const auto found = late.files.find(file_in(run_folder));
  if (found == late.files.end()) return false;
  const std::deque<std::string>& waiting = found->second.names;
  return std::find_first_of(waiting.begin(), waiting.end(), names.begin(), names.end()) != waiting.end();
}

}  // namespace espalier::report
