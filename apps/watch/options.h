// The options of `espalier watch`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/options.h"
#include "watch/chain.h"
#include "watch/judge.h"

namespace espalier {

struct WatchOptions {
  std::vector<std::string> runs;  // folders
  std::string alert_command;
  double interval_seconds = 30;
  bool once = false, check = false, json = false;
  watch::WatchRules rules;
  std::vector<std::string> other_folders;  // whose file systems are looked at, too
  std::string quota_command;
  std::string job_name, next_job, scheduler = "slurm";
  watch::ChainRule chain;
  std::vector<std::string> prune_words, backup_words;  // of `espalier checkpoint prune` and `backup`; empty: not done
  std::vector<std::string> verify_words;               // of `espalier checkpoint verify`; empty: not done
  double verify_seconds = 0;
  int64_t mirror_minutes = 10;
  std::vector<std::string> mirror_words;
};

// False where help was asked for and printed.
bool read_watch_options(const std::vector<std::string>& arguments, WatchOptions& options);

}  // namespace espalier
