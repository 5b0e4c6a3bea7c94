#include "launch/internal/process_state.h"

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "launch/internal/number.h"

namespace espalier::launch::internal {
namespace {

// The fields after the name: state, parent, group, session, ..., user and system time 12 and 13 of them.
std::optional<ProcessState> read_state(const std::filesystem::path& stat) {
  std::ifstream file(stat);
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  const std::vector<std::string> fields = split_blanks(text.substr(name_end + 1));
  if (fields.size() < 13) return std::nullopt;
  const auto number = [&](size_t at) { return parse_whole(fields[at]).value_or(0); };
  return ProcessState{.state = fields[0][0],
                      .cpu_ticks = static_cast<uint64_t>(number(11) + number(12)),
                      .parent = static_cast<pid_t>(number(1)),
                      .session = static_cast<pid_t>(number(3))};
}

}  // namespace

ProcessState state_of(pid_t pid) {
  const std::filesystem::path process = concat("/proc/", pid);
  ProcessState state = read_state(process / "stat").value_or(ProcessState{});
  if (state.state == 'T' || state.state == 't') {
    state.state = 'T';
    return state;
  }
  std::error_code error;
  for (std::filesystem::directory_iterator task(process / "task", error), last; !error && task != last;
       task.increment(error))
    if (const auto thread = read_state(task->path() / "stat"); thread && thread->state == 'D') state.state = 'D';
  return state;
}

ProcessState state_of_main_thread(pid_t pid) {
  return read_state(concat("/proc/", pid, "/stat")).value_or(ProcessState{});
}

ProcessState state_of_thread(pid_t pid, pid_t thread) {
  return read_state(concat("/proc/", pid, "/task/", thread, "/stat")).value_or(ProcessState{});
}

}  // namespace espalier::launch::internal
