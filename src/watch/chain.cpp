#include "watch/chain.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/json.h"
#include "launch/batch_script.h"

namespace espalier::watch {
namespace {

bool is_one_of(const std::string& state, const std::vector<std::string>& states) {
  return std::find(states.begin(), states.end(), state) != states.end();
}

// The number of an array's job: "123_[3-10%1]" -> "123".
std::string number_of(const std::string& id) { return id.substr(0, id.find('_')); }

std::string time_text(const RunSight& sight) {
  const auto left = sight.seconds_left();
  return left ? concat("about ", format_duration(*left), " of training left") : "an unknown time of training left";
}

}  // namespace

std::vector<QueuedJob> parse_squeue(const std::string& text) {
  std::vector<QueuedJob> jobs;
  for (const std::string& line : split(text, '\n')) {
    const std::vector<std::string> fields = split(strip(line), '|');
    if (fields.size() != 3) continue;
    QueuedJob job{
        .id = fields[0],
        .runs = is_one_of(fields[1], {"RUNNING", "CONFIGURING", "SUSPENDED", "COMPLETING", "STAGE_OUT"}),
        .waits = is_one_of(fields[1], {"PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"}),
        .seconds_left = std::nullopt};
    if (const auto left = launch::parse_time_limit(fields[2])) job.seconds_left = static_cast<double>(*left);
    jobs.push_back(job);
  }
  return jobs;
}

std::vector<QueuedJob> parse_qstat(const std::string& text, const std::string& job_name) {
  std::vector<QueuedJob> jobs;
  if (strip(text).empty()) return jobs;
  const nlohmann::json all = parse_json(text, "qstat -f -F json");
  if (!all.is_object()) throw UserError("qstat -f -F json: expected an object with Jobs");
  const nlohmann::json by_id = all.value("Jobs", nlohmann::json::object());
  for (const auto& [id, job] : by_id.items()) {
    if (!job.is_object() || job.value("Job_Name", "") != job_name) continue;
    const std::string state = job.value("job_state", "");
    QueuedJob found{.id = id,
                    .runs = is_one_of(state, {"R", "E", "S", "B"}),
                    .waits = is_one_of(state, {"Q", "H", "W"}),
                    .seconds_left = std::nullopt};
    const auto seconds = [&](const char* resources) {
      return launch::parse_time_limit(job.value(resources, nlohmann::json::object()).value("walltime", ""));
    };
    const auto limit = seconds("Resource_List"), used = seconds("resources_used");
    if (limit) found.seconds_left = static_cast<double>(*limit - used.value_or(0));
    jobs.push_back(found);
  }
  return jobs;
}

bool any_waits(const std::vector<QueuedJob>& jobs) {
  return std::any_of(jobs.begin(), jobs.end(), [](const QueuedJob& job) { return job.waits; });
}

ChainStep Chain::look(const RunSight& sight, const std::vector<QueuedJob>& jobs) {
  ChainStep step;
  if (sight.last_word == LastWord::kFinished || any_waits(jobs)) return step;
  double left_of_job = 0;
  for (const QueuedJob& job : jobs) {
    if (!job.runs) continue;
    step.after.push_back(number_of(job.id));
    if (!job.seconds_left) return {};  // without a limit: it needs no successor
    left_of_job = std::max(left_of_job, *job.seconds_left);
  }
  const bool is_running = !step.after.empty();
  const auto left = sight.seconds_left();
  if (is_running && (left_of_job > rule_.ahead_seconds || (left && *left < left_of_job))) return {};
  if (!is_running && sight.last_word == LastWord::kFailed) return {};  // that it failed is told elsewhere
  const std::string when =
      is_running ? concat("the job ends in ", format_duration(left_of_job)) : std::string("no job runs");
  if (!rule_.may_submit) {
    step.trouble = concat(when, ", ", time_text(sight), ", and no further job is queued");
  } else if (submitted_at_ && sight.step <= *submitted_at_) {
    step.trouble = concat(when, ", and the one submitted after step ", format_count(*submitted_at_),
                          " has gained no step: none is submitted again before someone has looked");
  } else {
    step.submits = true;
  }
  return step;
}

}  // namespace espalier::watch
