#include "train/task_evaluations.h"

#include <fcntl.h>

#include <cmath>
#include <csignal>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/stop_signals.h"
#include "base/whereabouts.h"
#include "launch/environment.h"
#include "store/run_folder.h"

namespace espalier::train {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

constexpr auto kLook = std::chrono::milliseconds(50);
constexpr double kPatienceSeconds = 2;

// Those of a program that was started by hand: the ranks' own would make it one of them.
launch::Variables variables_outside_of_ranks() {
  launch::Variables variables = launch::process_variables();
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
                           "ESPALIER_LAUNCH", "GROUP_RANK", "ROLE_RANK"})
    variables.erase(name);
  return variables;
}

int open_for_output(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor < 0) throw UserError(concat("cannot write ", path.string()), ExitCode::kInputOutput);
  return descriptor;
}

std::vector<report::TaskFigure> figures_of(const fs::path& results) {
  std::vector<report::TaskFigure> figures;
  const OrderedJson json = parse_json<OrderedJson>(read_file(results), results.string());
  for (const auto& [task, metrics] : json.at("results").items())
    for (const auto& [metric, value] : metrics.items())
      if (metric != "sample_len" && (value.is_number() || value.is_null()))
        figures.push_back({task, metric, value.is_null() ? std::nan("") : value.get<double>()});
  return figures;
}

}  // namespace

TaskEvaluations::TaskEvaluations(Job& job, report::RunLog& log) : job_(job), log_(log), step_(job.newest_saved()) {}

TaskEvaluations::~TaskEvaluations() {
  if (running_ != nullptr) running_->stop(SIGTERM, kPatienceSeconds);
}

fs::path TaskEvaluations::file(const char* ending) const {
  return fs::path(job_.config().checkpoint.save) / "evaluations" / (store::step_folder_name(*step_) + ending);
}

void TaskEvaluations::start(int64_t step) {
  const config::RunConfig& config = job_.config();
  step_ = step;
  try {
    fs::create_directories(file("").parent_path());
    launch::Worker eval;
    eval.command = {"nice",
                    "-n",
                    "19",
                    fs::read_symlink("/proc/self/exe").parent_path() / "espalier",
                    "eval",
                    "--load",
                    fs::path(config.checkpoint.save) / store::step_folder_name(step),
                    "--num-threads",
                    std::to_string(config.data.eval_tasks_threads),
                    "--output",
                    file(".json")};
    for (const auto& [name, words] :
         {std::pair{"--tasks", &config.data.eval_tasks}, {"--data", &config.data.eval_tasks_data}}) {
      eval.command.push_back(name);
      eval.command.insert(eval.command.end(), words->begin(), words->end());
    }
    if (!config.data.eval_tasks_files.empty())
      eval.command.insert(eval.command.end(), {"--task-files", config.data.eval_tasks_files});
    eval.variables = variables_outside_of_ranks();
    eval.stdout_to = open_for_output(file(".txt"));
    eval.stderr_to = open_for_output(file(".log"));
    running_ = std::make_unique<launch::WorkerGroup>(std::vector<launch::Worker>{eval});
  } catch (const std::exception& error) {  // of the file system, or of a program that cannot be started
    return fail(error.what());
  }
  deadline_ = std::chrono::steady_clock::now() + std::chrono::minutes(config.data.eval_tasks_minutes);
}

void TaskEvaluations::fail(const std::string& why) {
  running_.reset();
  const std::string what = concat("the tasks of --eval-tasks at step ", *step_, " have no figures: ", why);
  log_warning(what);
  log_.event("evaluation failed", *step_, what);
}

void TaskEvaluations::record() {
  running_.reset();
  try {
    log_.tasks(*step_, figures_of(file(".json")));
  } catch (const std::exception& error) {  // of the disk, or of a file that is no result
    fail(error.what());
  }
}

void TaskEvaluations::poll() {
  if (running_ == nullptr) return;
  running_->reap();
  if (running_->num_running() == 0) {
    if (running_->any_failed())
      return fail(concat("espalier eval ended with code ", launch::exit_code_of(running_->failures().front()), "; see ",
                         file(".log").string()));
    return record();
  }
  if (std::chrono::steady_clock::now() < deadline_) return;
  running_->stop(SIGTERM, kPatienceSeconds);
  fail(concat("they took longer than --eval-tasks-minutes ", job_.config().data.eval_tasks_minutes));
}

void TaskEvaluations::after_step(const report::StepReport&) {
  if (job_.grid().rank != 0 || job_.config().data.eval_tasks.empty()) return;
  poll();
  const auto newest = job_.newest_saved();
  if (running_ == nullptr && newest && newest != step_) start(*newest);
}

void TaskEvaluations::at_end() {
  if (job_.grid().rank != 0 || job_.config().data.eval_tasks.empty()) return;
  const StopSignals signals;
  set_awaited("the tasks of --eval-tasks, asked of the last checkpoint; the checkpoint itself is saved");
  const WaitsFor waits(Waiting::kOthers, "the tasks", "--eval-tasks");
  for (bool last = false; !signals.received();) {
    poll();
    if (running_ == nullptr) {
      const auto newest = job_.newest_saved();
      if (last || !newest || newest == step_) return;
      last = true;
      start(*newest);
    }
    std::this_thread::sleep_for(kLook);
  }
}

}  // namespace espalier::train
