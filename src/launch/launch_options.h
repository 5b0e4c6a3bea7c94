// torchrun's flags, read and resolved. docs/launch.md lists where we differ.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/options.h"

namespace espalier::launch {

enum class Rendezvous { kStatic, kC10d };

// Which of a rank's streams something holds for.
struct Streams {
  bool out = false, err = false;
  bool operator==(const Streams&) const = default;
};

// "0" to "3" for all ranks, or "0:3,1:1" by local rank (others none).
struct StreamRule {
  Streams all;
  std::map<int64_t, Streams> by_local_rank;
  Streams of(int64_t local_rank) const;
};

// Where the page that shows the run listens.
struct PageOptions {
  std::string host = "127.0.0.1";
  int port = 0;  // 0: any free one
};

inline constexpr double kShutdownSeconds = 30;

struct LaunchOptions {
  int64_t min_nodes = 1, max_nodes = 1;
  int64_t num_local_ranks = 1;
  int64_t node_rank = 0;  // static rendezvous only
  Rendezvous rendezvous = Rendezvous::kStatic;
  std::string store_host =
      "127.0.0.1";     // where the rendezvous store of the launchers and ranks is, as all machines reach it
  int store_port = 0;  // 0: a free one (one machine)
  std::optional<bool> hosts_store;  // --rdzv-conf is_host
  std::string run_id;
  std::string local_address;  // by which nodes are numbered and reached; empty: the full host name
  int master_port = 0;        // MASTER_PORT for programs that are not ours; 0: a free one
  int64_t max_restarts = 0;
  double monitor_interval_seconds = 0.1, join_timeout_seconds = 600, last_call_seconds = 30;
  double hang_timeout_seconds = 5;  // HangRules::shortest
  // From a signal to SIGKILL. Unset: kShutdownSeconds, but training that is told to stop has as long as it takes.
  std::optional<double> shutdown_timeout_seconds;
  StreamRule redirects, tee;
  std::string log_dir;  // empty: a temporary folder
  std::string role = "default", line_prefix = "[${role_name}${local_rank}]:";
  std::set<int64_t> local_ranks_filter;  // whose output reaches the launcher's streams; empty: all
  std::optional<PageOptions> page;
  std::string alert_command;         // empty: none
  bool runs_other_program = false;   // --no-python
  std::vector<std::string> program;  // and its arguments

  bool is_single_node() const { return max_nodes == 1; }
  double patience_after_failure() const { return shutdown_timeout_seconds.value_or(kShutdownSeconds); }
};

// Of the words after `launch`. Nothing if help was printed. UserError (exit code 2) with every problem.
// `variables`: where PET_<NAME> gives an option a value that no flag gives.
std::optional<LaunchOptions> read_launch_options(const std::vector<std::string>& arguments,
                                                 const std::map<std::string, std::string>& variables);

// How many of `arguments` are options of `table` and their values: what follows is a program with words of its own.
size_t num_option_words(const OptionTable& table, const std::vector<std::string>& arguments);

// The same for the options of `espalier launch` itself.
size_t num_launch_option_words(const std::vector<std::string>& arguments);

StreamRule parse_stream_rule(const std::string& option, const std::string& text, Problems& problems);

}  // namespace espalier::launch
