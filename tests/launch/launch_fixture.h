// Runs of several processes for tests, started as users start them.
#pragma once

#include <sys/wait.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/shell.h"
#include "tests/e2e/run_files.h"
#include "tests/support/long_version.h"

namespace espalier::test {

struct Shell {
  int exit_code = -1;
  std::string output, errors;
};

// Runs `command` by bash in the root of the repository, with `espalier` in PATH.
inline Shell shell(const TemporaryFolder& folder, const std::string& command) {
  const std::string programs = std::filesystem::path(ESPALIER_PROGRAM).parent_path();
  const std::string out = folder / "shell.out", err = folder / "shell.err";
  const std::string line = concat("PATH=", programs, ":$PATH bash -c ", shell_word(command), " >", out, " 2>", err);
  const int status = std::system(line.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_file(out), read_file(err)};
}

// Shell functions of these tests; `launcher` is the launcher's process.
inline constexpr const char* kAwait = R"(
  await() {  # await COMMAND: until it succeeds, for two minutes
    for attempt in {1..2400}; do "$@" && return; sleep 0.05; done
    echo "no: $*"; exit 1
  }
)";
inline constexpr const char* kRank = R"(
  rank() {  # rank N: the process of that rank
    for pid in $(cat /proc/$launcher/task/*/children); do
      tr '\0' '\n' </proc/$pid/environ | grep -qx "RANK=$1" && echo $pid
    done
  }
)";

inline std::string command_line(const Words& words) {
  std::string line;
  for (const std::string& word : words) line += " " + shell_word(word);
  return line;
}

// Waits until `condition` holds; false when it does not in time.
template <class Condition>
bool wait_until(double seconds, const Condition& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

inline size_t num_records(const std::string& run_folder) {
  return std::filesystem::exists(run_folder + "/metrics.jsonl") ? step_records(run_folder).size() : 0;
}

// The steps from which the starts of a run went on.
inline std::vector<int64_t> start_steps(const std::string& run_folder) {
  std::vector<int64_t> steps;
  std::ifstream file(run_folder + "/events.jsonl");
  for (std::string line; std::getline(file, line);)
    if (const auto event = nlohmann::json::parse(line); event.at("event") == "start") steps.push_back(event.at("step"));
  return steps;
}

// A run over data at `folder`/data that saves nothing before its last step, of four samples each.
inline Words unsaved_run(const TemporaryFolder& folder, const std::string& save, int64_t steps,
                         const std::string& more) {
  return Words{"train", "gpt"} + tiny_run(folder / "data") +
         split_blanks(concat("--micro-batch-size 1 --global-batch-size 4 --train-samples ", 4 * steps,
                             " --lr-decay-samples ", 4 * steps,
                             " --num-threads 1 --eval-iters 0 --save-interval 1000000 ", more)) +
         Words{"--save", folder / save, "--load", folder / save};
}

}  // namespace espalier::test
