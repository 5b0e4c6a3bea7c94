#include "train/task_evaluations.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/stop_signals.h"
#include "base/whereabouts.h"
#include "store/run_folder.h"

namespace espalier::train {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

constexpr auto kLookAtProgram = std::chrono::milliseconds(50);

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

fs::path TaskEvaluations::file(const char* ending) const {
  return fs::path(job_.config().checkpoint.save) / "evaluations" / (store::step_folder_name(*step_) + ending);
}

void TaskEvaluations::start(int64_t step) {
  const config::RunConfig& config = job_.config();
  step_ = step;
  try {
    fs::create_directories(file("").parent_path());
    std::vector<std::string> words = {"eval",
                                      "--load",
                                      fs::path(config.checkpoint.save) / store::step_folder_name(step),
                                      "--num-threads",
                                      std::to_string(config.data.eval_tasks_threads),
                                      "--output",
                                      file(".json")};
    for (const auto& [name, values] :
         {std::pair{"--tasks", &config.data.eval_tasks}, {"--data", &config.data.eval_tasks_data}}) {
      words.push_back(name);
      words.insert(words.end(), values->begin(), values->end());
    }
    if (config.data.eval_ema) words.push_back("--ema");
    if (!config.data.eval_tasks_files.empty())
      words.insert(words.end(), {"--task-files", config.data.eval_tasks_files});
    program_.start(std::move(words), file(".txt"), file(".log"));
  } catch (const std::exception& error) {  // of the file system, or of a program that cannot be started
    return fail(error.what());
  }
  deadline_ = std::chrono::steady_clock::now() + std::chrono::minutes(config.data.eval_tasks_minutes);
}

void TaskEvaluations::fail(const std::string& why) {
  program_.stop();
  const std::string what = concat("the tasks of --eval-tasks at step ", *step_, " have no figures: ", why);
  log_warning(what);
  log_.event("evaluation failed", *step_, what);
}

void TaskEvaluations::record() {
  try {
    log_.tasks(*step_, figures_of(file(".json")));
  } catch (const std::exception& error) {  // of the disk, or of a file that is not a result
    fail(error.what());
  }
}

void TaskEvaluations::poll() {
  if (const auto code = program_.take_exit_code()) {
    if (*code == 0) return record();
    return fail(concat("espalier eval ended with code ", *code, "; see ", file(".log").string()));
  }
  if (!program_.is_running()) return;
  if (std::chrono::steady_clock::now() < deadline_) return;
  fail(concat("they took longer than --eval-tasks-minutes ", job_.config().data.eval_tasks_minutes));
}

void TaskEvaluations::after_step(const report::StepReport&) {
  if (job_.grid().rank != 0 || job_.config().data.eval_tasks.empty()) return;
  poll();
  const auto newest = job_.newest_saved();
  if (!program_.is_running() && newest && newest != step_) start(*newest);
}

void TaskEvaluations::at_end() {
  if (job_.grid().rank != 0 || job_.config().data.eval_tasks.empty()) return;
  const StopSignals signals;
  set_awaited("the tasks of --eval-tasks, run on the last checkpoint; the checkpoint itself is saved");
  const WaitsFor waits(Waiting::kOthers, "the tasks", "--eval-tasks");
  for (bool last = false; !signals.received();) {
    poll();
    if (!program_.is_running()) {
      const auto newest = job_.newest_saved();
      if (last || !newest || newest == step_) return;
      last = true;
      start(*newest);
    }
    std::this_thread::sleep_for(kLookAtProgram);
  }
}

}  // namespace espalier::train
