#include "launch/failure.h"

#include <signal.h>
#include <string.h>
#include <time.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"

namespace espalier::launch {
namespace {

using Json = nlohmann::json;

bool is_consequence(const Failure& failure) {
  return failure.signal == 0 && failure.exit_code == static_cast<int>(ExitCode::kLostPeer);
}

// A killed rank is noticed a moment after its peers have felt it.
double time_of_cause(const Failure& failure) { return failure.signal != 0 ? failure.time - 1 : failure.time; }

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? "unknown" : concat("SIG", name);
}

std::string indented(const std::string& text, const std::string& indent) {
  std::string result;
  for (const char c : text) {
    result += c;
    if (c == '\n') result += indent;
  }
  return result;
}

std::string traceback(const Failure& failure) {
  if (!failure.message.empty()) return indented(failure.message, "    ");
  if (failure.signal != 0)
    return concat("Signal ", failure.signal, " (", signal_name(failure.signal), ") received by PID ", failure.pid,
                  failure.lacked_memory ? ": the kernel ended it, as its control group was out of memory" : "");
  return "the rank left no message; what it printed tells more";
}

std::string block(size_t number, const Failure& failure) {
  const std::string code =
      failure.signal != 0 ? concat(-failure.signal, " (pid: ", failure.pid, ")  (", signal_name(failure.signal), ")")
                          : concat(failure.exit_code, " (pid: ", failure.pid, ")");
  std::string text =
      concat("[", number, "]:\n  time      : ", local_time(failure.time), "\n  host      : ", failure.host,
             "\n  rank      : ", failure.rank, " (local_rank: ", failure.local_rank, ")\n  exitcode  : ", code,
             "\n  error_file: ", failure.error_file.empty() ? "<N/A>" : failure.error_file,
             "\n  traceback : ", traceback(failure), "\n");
  if (!failure.last_lines.empty())
    text += concat("  last lines of its stderr:\n    ", indented(strip(failure.last_lines), "    "), "\n");
  return text;
}

}  // namespace

std::string to_json(const std::vector<Failure>& failures) {
  Json list = Json::array();
  for (const Failure& failure : failures)
    list.push_back({{"rank", failure.rank},
                    {"local_rank", failure.local_rank},
                    {"host", failure.host},
                    {"pid", failure.pid},
                    {"exit_code", failure.exit_code},
                    {"signal", failure.signal},
                    {"time", failure.time},
                    {"error_file", failure.error_file},
                    {"message", failure.message},
                    {"last_lines", failure.last_lines},
                    {"phase", failure.phase},
                    {"step", failure.step},
                    {"lost_machine", failure.lost_machine},
                    {"lacked_memory", failure.lacked_memory}});
  return list.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::vector<Failure> failures_from_json(const std::string& text) {
  std::vector<Failure> failures;
  for (const Json& entry : Json::parse(text)) {
    Failure failure;
    entry.at("rank").get_to(failure.rank);
    entry.at("local_rank").get_to(failure.local_rank);
    entry.at("host").get_to(failure.host);
    entry.at("pid").get_to(failure.pid);
    entry.at("exit_code").get_to(failure.exit_code);
    entry.at("signal").get_to(failure.signal);
    entry.at("time").get_to(failure.time);
    entry.at("error_file").get_to(failure.error_file);
    entry.at("message").get_to(failure.message);
    entry.at("last_lines").get_to(failure.last_lines);
    entry.at("phase").get_to(failure.phase);
    entry.at("step").get_to(failure.step);
    entry.at("lost_machine").get_to(failure.lost_machine);
    failure.lacked_memory = entry.value("lacked_memory", false);  // records of earlier versions do not say it
    failures.push_back(std::move(failure));
  }
  return failures;
}

void sort_by_cause(std::vector<Failure>& failures) {
  std::stable_sort(failures.begin(), failures.end(), [](const Failure& a, const Failure& b) {
    if (is_consequence(a) != is_consequence(b)) return is_consequence(b);
    return time_of_cause(a) < time_of_cause(b);
  });
}

bool was_hung(const Failure& failure) {
  return failure.signal == SIGKILL && failure.error_file.empty() && !failure.message.empty();
}

std::string describe(const Failure& failure) {
  if (failure.signal != 0)
    return concat("signal ", failure.signal, ", ", signal_name(failure.signal),
                  was_hung(failure)       ? ", by the launcher, as the rank hung"
                  : failure.lacked_memory ? ": out of memory, as the kernel says of this control group"
                                          : "");
  return concat("exit code ", failure.exit_code, failure.message.empty() ? "" : ": " + failure.message);
}

std::string local_time(double seconds) {
  const time_t whole = static_cast<time_t>(seconds);
  tm parts = {};
  localtime_r(&whole, &parts);
  char text[32];
  strftime(text, sizeof text, "%Y-%m-%d_%H:%M:%S", &parts);
  return text;
}

int exit_code_of(const Failure& failure) { return failure.signal != 0 ? 128 + failure.signal : failure.exit_code; }

std::string failure_report(const std::string& program, const std::vector<Failure>& failures) {
  ESPALIER_CHECK(!failures.empty());
  const std::string thick(60, '='), thin(60, '-');
  std::string text = concat(thick, "\n", program, " FAILED\n", thin, "\nFailures:\n");
  if (failures.size() == 1) text += "  <NO_OTHER_FAILURES>\n";
  for (size_t number = 1; number < failures.size(); ++number) text += block(number, failures[number]);
  text += concat(thin, "\nRoot Cause (first observed failure):\n", block(0, failures.front()), thick, "\n");
  return text;
}

}  // namespace espalier::launch
