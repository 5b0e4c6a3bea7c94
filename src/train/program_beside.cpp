#include "train/program_beside.h"

#include <fcntl.h>

#include <csignal>

#include "base/error.h"
#include "launch/environment.h"

namespace espalier::train {
namespace {

namespace fs = std::filesystem;

constexpr double kPatienceSeconds = 2;

// Those of a program that was started by hand: the ranks' own would make it one of them.
launch::Variables variables_outside_of_ranks() {
  launch::Variables variables = launch::process_variables();
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
                           "ESPALIER_LAUNCH", launch::kLaunchedAtVariable, "GROUP_RANK", "ROLE_RANK"})
    variables.erase(name);
  return variables;
}

int open_for_output(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) throw UserError(concat("cannot write ", path.string()), ExitCode::kInputOutput);
  return descriptor;
}

}  // namespace

void ProgramBeside::start(std::vector<std::string> words, const fs::path& output, const fs::path& log) {
  launch::Worker worker;
  worker.command = {"nice", "-n", "19", fs::read_symlink("/proc/self/exe").parent_path() / "espalier"};
  worker.command.insert(worker.command.end(), words.begin(), words.end());
  worker.variables = variables_outside_of_ranks();
  worker.stdout_to = open_for_output(output);
  worker.stderr_to = open_for_output(log);
  running_ = std::make_unique<launch::WorkerGroup>(std::vector<launch::Worker>{worker});
}

std::optional<int> ProgramBeside::take_exit_code() {
  if (running_ == nullptr) return std::nullopt;
  running_->reap();
  if (running_->num_running() > 0) return std::nullopt;
  const int code = running_->any_failed() ? launch::exit_code_of(running_->failures().front()) : 0;
  running_.reset();
  return code;
}

void ProgramBeside::stop() {
  if (running_ != nullptr) running_->stop(SIGTERM, kPatienceSeconds);
  running_.reset();
}

}  // namespace espalier::train
