#include "launch/restart_policy.h"

#include <signal.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/shell.h"
#include "base/whereabouts.h"

namespace espalier::launch {
namespace {

using Json = nlohmann::json;

constexpr double kLongestWait = 60;

// By its own doing, or by its machine's memory: not by somebody else.
bool is_own(int signal) {
  for (const int own : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS, SIGTRAP})
    if (signal == own) return true;
  return false;
}

// An error that all ranks meet is told by any of them.
bool same_fault(const Failure& a, const Failure& b) {
  const bool same_end = a.signal == b.signal && a.exit_code == b.exit_code && a.phase == b.phase && a.step == b.step;
  return same_end && (a.signal == 0 || (a.rank == b.rank && a.host == b.host));
}

template <class Of>
std::string the_same(const std::vector<Failure>& failures, const char* what, const Of& of) {
  std::set<std::string> values;
  for (const Failure& failure : failures) values.insert(of(failure));
  const std::vector<std::string> list(values.begin(), values.end());
  return values.size() == 1 ? concat("  the same ", what, ": ", list[0], "\n")
                            : concat("  another ", what, " each time: ", join(list, ", "), "\n");
}

std::string advice_on_hung(const Failure& failure, const std::string& run_folder) {
  return concat(
      "The others waited for this rank each time in vain, and the launcher ended it. Where it stood is in\n  ",
      run_folder.empty() ? "the launcher's log (stacks)" : shell_word(run_folder) + "/stacks_*.txt",
      "\n  espalier doctor                                  on ", failure.host,
      "\nThen restart the run without that machine (espalier submit --exclude ", failure.host,
      ", or another host in its place).");
}

std::string advice_on_killed(const Failure& failure) {
  return concat("Somebody or something outside the run ended this rank each time at the same place. Usually it is ",
                "memory:\n  dmesg -T | grep -i -e 'out of memory' -e oom     on ", failure.host,
                "\n  espalier doctor                                  there\n",
                "Then restart the run without that machine (espalier submit --exclude ", failure.host,
                ", or another host in its place), or with less memory for each rank (espalier plan).");
}

std::string advice_on_error(const Failure& failure, const std::string& run_folder) {
  const std::string run = run_folder.empty() ? "RUN" : shell_word(run_folder);
  if (failure.step == 0)
    return "Each start ended by itself before a step was trained: the options, the files that it reads or writes, or "
           "the program are the cause, and starting again would not change them. Once that is mended, the same command "
           "continues from the newest checkpoint, or begins.";
  std::string text =
      "The run ended by itself each time at the same place, the last time from the checkpoint on disk, and starting "
      "again would not change that. Its last message says what is known of the cause; where it names none, look at the "
      "data of that step, the options and the program:\n";
  text += concat("  espalier data who --run ", run, " --step ", failure.step, "       the documents of that step\n",
                 "  espalier replay --load ", run, " --step ", failure.step, "      the step once more, examined\n",
                 "  --skip-train-iteration-range ", failure.step, "-", failure.step, "      skips it\n");
  return text + "Once the cause is gone, the same command continues from the newest checkpoint.";
}

}  // namespace

bool is_from_outside(const Failure& failure) {
  if (failure.lost_machine) return true;
  if (failure.signal != 0) return !is_own(failure.signal);
  return failure.exit_code == static_cast<int>(ExitCode::kLostPeer);
}

std::string place_of(const Failure& failure) {
  if (failure.phase.empty()) return "";
  return concat("phase ", failure.phase, failure.step > 0 ? concat(", step ", format_count(failure.step)) : "");
}

RestartPolicy::RestartPolicy(int64_t max_restarts, const std::string& history) : max_restarts_(max_restarts) {
  if (history.empty()) return;
  const Json json = Json::parse(history);
  json.at("furthest_step").get_to(furthest_step_);
  json.at("num_without_gain").get_to(num_without_gain_);
  json.at("num_restarts").get_to(num_restarts_);
  json.at("has_been_tried").get_to(has_been_tried_);
  alike_ = failures_from_json(json.at("alike").dump());
}

std::string RestartPolicy::history() const {
  std::vector<Failure> alike = alike_;
  for (Failure& failure : alike) {
    const bool hung = was_hung(failure);
    for (std::string* text : {&failure.error_file, &failure.message, &failure.last_lines}) text->clear();
    if (hung) failure.message = "the run hangs";
  }
  const Json json = {{"furthest_step", furthest_step_},
                     {"num_without_gain", num_without_gain_},
                     {"num_restarts", num_restarts_},
                     {"has_been_tried", has_been_tried_},
                     {"alike", Json::parse(to_json(alike))}};
  return json.dump();
}

RestartDecision RestartPolicy::decide(const Failure& cause) {
  // Of programs that do not say where they are nothing is known: they are started again as torchrun does.
  const bool is_known = !cause.phase.empty(), is_first = !std::exchange(has_been_tried_, true);
  if (!is_known || (!alike_.empty() && !same_fault(alike_.back(), cause))) alike_.clear();
  if (is_known) alike_.push_back(cause);
  if (!cause.lost_machine) num_without_gain_ = cause.step > furthest_step_ ? 0 : num_without_gain_ + 1;
  if (is_known && cause.step > std::max<int64_t>(furthest_step_, 0)) num_restarts_ = 0;
  furthest_step_ = std::max(furthest_step_, cause.step);

  // Nothing was trained that could be spoilt; but if what ended it is the copy, the next start goes without it.
  const bool is_before_training =
      is_known && (cause.phase == to_string(RunPhase::kStart) || cause.phase == to_string(RunPhase::kLoad));
  RestartDecision decision;
  decision.is_refused = is_first && is_before_training && cause.signal == 0 &&
                        cause.exit_code == static_cast<int>(ExitCode::kCannotCreate);
  if (decision.is_refused) return decision;
  decision.trusts_memory = is_from_outside(cause) || (is_before_training && alike_.size() == 1);
  const size_t most = is_from_outside(cause) ? kMostAlike : is_before_training ? 3 : 2;
  if (is_known && alike_.size() >= most) {
    decision.alike = alike_;
    return decision;
  }
  decision.starts_again = num_restarts_ < max_restarts_;
  if (decision.starts_again) decision.restart = ++num_restarts_;
  if (is_known && num_without_gain_ > 0)
    decision.wait_seconds = std::min(kLongestWait, std::ldexp(1.0, static_cast<int>(num_without_gain_) - 1));
  return decision;
}

std::string cause_page(const std::vector<Failure>& alike, const std::string& run_folder) {
  ESPALIER_CHECK(!alike.empty());
  const Failure& last = alike.back();
  std::string text = concat("The run has ended because the same fault came ", alike.size(),
                            " times: it is not tried again.\n\nWhat failed\n");
  for (Failure failure : alike) {
    if (!was_hung(failure)) failure.message.clear();  // below, once
    text += concat("  ", local_time(failure.time), "  rank ", failure.rank, " on ", failure.host, ", process ",
                   failure.pid, ": ", describe(failure), "\n");
  }
  text += "\nWhat these have in common\n";
  text += the_same(alike, "place", [](const Failure& failure) {
    const std::string place = place_of(failure);
    return place.empty() ? "not known" : place;
  });
  text += the_same(alike, "rank", [](const Failure& failure) { return std::to_string(failure.rank); });
  text += the_same(alike, "host", [](const Failure& failure) { return failure.host; });
  if (!last.message.empty()) text += concat("\nIts last message\n  ", last.message, "\n");
  if (!last.last_lines.empty()) text += concat("\nThe last lines of its stderr\n", last.last_lines, "\n");
  const std::string advice = was_hung(last)          ? advice_on_hung(last, run_folder)
                             : is_from_outside(last) ? advice_on_killed(last)
                                                     : advice_on_error(last, run_folder);
  text += concat("\nWhat to do\n", advice, "\n");
  return text;
}

}  // namespace espalier::launch
