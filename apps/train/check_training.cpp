#include "apps/train/check_training.h"

#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "apps/become_engine.h"
#include "launch/environment.h"
#include "launch/failure.h"
#include "launch/worker_group.h"

namespace espalier {

bool asks_for_validation(const std::vector<std::string>& words) {
  return std::any_of(words.begin(), words.end(), [](const std::string& word) {
    const std::string name = word.substr(0, word.find('='));
    return name == "--validate-only" || name == "--validate_only";
  });
}

int check_training(const std::vector<std::string>& words, const TrainingCheck& what) {
  launch::Worker check;
  check.command = {path_beside_this_program("espalier")};
  check.command.insert(check.command.end(), words.begin(), words.end());
  if (!what.shows_options) check.command.push_back("--validate-only");
  if (!what.runs_here) check.command.push_back("--allow-memory-overcommit");
  check.variables = launch::process_variables();
  const launch::Variables place = {
      {"ESPALIER_LAUNCH", "1"},
      {"RANK", "0"},
      {"WORLD_SIZE", std::to_string(what.num_ranks.value_or(what.num_nodes * what.ranks_of_node))},
      {"LOCAL_RANK", "0"},
      {"LOCAL_WORLD_SIZE", std::to_string(what.ranks_of_node)},
      {"MASTER_ADDR", "127.0.0.1"}};  // nobody meets for a check
  for (const auto& [name, value] : place) check.variables[name] = value;
  if (!what.shows_options) check.stdout_to = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (what.is_silent) check.stderr_to = open("/dev/null", O_WRONLY | O_CLOEXEC);
  launch::WorkerGroup group({check});
  while (group.num_running() > 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    group.reap();
  }
  return group.any_failed() ? launch::exit_code_of(group.failures().front()) : 0;
}

}  // namespace espalier
