#include "apps/become_engine.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/format.h"
#include "base/literal.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "launch/cores.h"

namespace espalier {
namespace {

// libgomp says that such a value is invalid, and takes another number of threads. "4,2" is for nested regions.
void check_thread_variables() {
  for (const char* name : {"OMP_NUM_THREADS", "OMP_THREAD_LIMIT"}) {
    const char* const value = std::getenv(name);
    if (value == nullptr) continue;
    for (const std::string& part : split(value, ',')) {
      const std::optional<int64_t> number = parse_python_int(part);
      if (!number || *number < 1)
        throw UserError(
            concat("the environment's ", name, "='", value,
                   "' is not a number of threads: set it to 1 or more, or unset it; --num-threads overrides it"),
            ExitCode::kUsage);
    }
  }
}

bool is_in_batch_job() {
  for (const char* name : {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID"})
    if (std::getenv(name) != nullptr) return true;
  return false;
}

}  // namespace

std::string path_beside_this_program(const std::string& name) {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / name;
}

bool choose_how_threads_wait(int64_t num_processes) {
  check_thread_variables();
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return false;
  const int64_t num_cores = num_usable_cores();
  int64_t num_threads = num_cores;
  if (const char* each = std::getenv("OMP_NUM_THREADS"))
    num_threads = num_processes * parse_python_int(split(each, ',').front()).value_or(1);
  const bool too_many = num_threads > num_cores;
  const bool busy = !too_many && !is_in_batch_job() && !launch::has_free_cores(num_threads);
  if (too_many || busy)
    ::setenv("OMP_WAIT_POLICY", "passive", 1);
  else
    ::setenv("GOMP_SPINCOUNT", "10000", 1);
  return busy;
}

namespace {

// What execv takes.
struct EngineWords {
  EngineWords(const std::string& command, const std::vector<std::string>& arguments)
      : words({path_beside_this_program("espalier-engine"), command}) {
    words.insert(words.end(), arguments.begin(), arguments.end());
    if (choose_how_threads_wait() && command == "train")
      log_info(
          "other programs keep this machine's cores busy: threads that wait for work sleep at once; with the cores "
          "for itself the run is faster (docs/training.md)");
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
  }
  [[noreturn]] void cannot_start(int error) const {
    throw UserError(concat("cannot start ", words[0], ": ", std::strerror(error),
                           ". It is built and installed next to espalier; build it with scripts/setup."));
  }
  std::vector<std::string> words;
  std::vector<char*> pointers;
};

}  // namespace

void become_engine(const std::string& command, const std::vector<std::string>& arguments) {
  const EngineWords engine(command, arguments);
  execv(engine.words[0].c_str(), engine.pointers.data());
  engine.cannot_start(errno);
}

int run_engine(const std::string& command, const std::vector<std::string>& arguments) {
  const EngineWords engine(command, arguments);
  pid_t child = 0;
  const int error = posix_spawn(&child, engine.words[0].c_str(), nullptr, nullptr, engine.pointers.data(), environ);
  if (error != 0) engine.cannot_start(error);
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) engine.cannot_start(errno);
  if (WIFSIGNALED(status))
    throw UserError(concat(engine.words[0], " ", command, " was killed by signal ", WTERMSIG(status),
                           WTERMSIG(status) == SIGKILL ? ": probably for memory" : ""));
  return WEXITSTATUS(status);
}

}  // namespace espalier
