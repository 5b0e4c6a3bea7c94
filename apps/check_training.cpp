#include "check_training.h"

#include <fcntl.h>

#include <chrono>
#include <thread>

#include "become_engine.h"
#include "launch/environment.h"
#include "launch/failure.h"
#include "launch/worker_group.h"

namespace espalier {

int check_training(const std::vector<std::string>& words, int64_t world_size) {
  launch::Worker check;
  check.command = {path_beside_this_program("espalier")};
  check.command.insert(check.command.end(), words.begin(), words.end());
  check.command.push_back("--validate-only");
  check.variables = launch::process_variables();
  const std::string world = std::to_string(world_size);
  const launch::Variables place = {
      {"ESPALIER_LAUNCH", "1"}, {"RANK", "0"}, {"WORLD_SIZE", world}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", world}};
  for (const auto& [name, value] : place) check.variables[name] = value;
  check.stdout_to = open("/dev/null", O_WRONLY | O_CLOEXEC);
  launch::WorkerGroup group({check});
  while (group.num_running() > 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    group.reap();
  }
  return group.any_failed() ? launch::exit_code_of(group.failures().front()) : 0;
}

}  // namespace espalier
