// What this machine has for training, one finding a line.
#pragma once

#include <string>
#include <vector>

namespace espalier {

struct Finding {
  enum class Verdict { kGood, kWarning, kProblem };  // a problem: training cannot start
  std::string topic;                                 // "memory"
  Verdict verdict = Verdict::kGood;
  std::string text;    // "62.5 GiB, 31.2 GiB of them free"
  std::string advice;  // what to do; empty where nothing is wrong
};

std::vector<Finding> check_processor();
std::vector<Finding> check_memory();
std::vector<Finding> check_limits();
// Space, type and use of a folder: writes a file of one byte there and removes it.
std::vector<Finding> check_folder(const std::string& folder);
std::vector<Finding> check_network_and_clock();
std::vector<Finding> check_schedulers();

}  // namespace espalier
