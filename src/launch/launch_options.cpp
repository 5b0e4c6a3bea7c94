#include "launch/launch_options.h"

#include <glob.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>

#include "base/format.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/thread_pool.h"
#include "launch/internal/number.h"

namespace espalier::launch {
namespace {

using Words = std::vector<std::string>;
using Variables = std::map<std::string, std::string>;

constexpr int kDefaultRendezvousPort = 29400;

// As written on the command line.
struct LaunchFlags {
  std::string nnodes = "1:1", nproc_per_node = "1", rdzv_backend = "static", rdzv_endpoint, rdzv_id = "none", rdzv_conf;
  std::string start_method = "spawn", role = "default", log_dir, redirects = "0", tee = "0", local_ranks_filter;
  std::string master_addr = "127.0.0.1", local_addr, line_prefix = "[${role_name}${local_rank}]:";
  int64_t node_rank = 0, max_restarts = 0, master_port = 29500;
  double monitor_interval = 0.1;
  double hang_timeout = 5;
  std::optional<double> shutdown_timeout;
  bool standalone = false, module = false, no_python = false, page = false;
  std::string alert_command;
  std::string page_host = PageOptions{}.host;
  int64_t page_port = 0;
};

void add_rows(OptionTable& table, LaunchFlags& flags) {
  using Takes = OptionTable::Takes;
  table.group("ranks");
  table
      .add("--nnodes", flags.nnodes,
           "machines, or MIN:MAX: the run goes on with those that are left, and takes in those that come")
      .value_name("N")
      .common();
  table.add("--nproc-per-node", flags.nproc_per_node, "ranks on this machine: a number, auto, cpu or gpu")
      .value_name("N")
      .common();
  table.add("--node-rank", flags.node_rank, "this machine's number, for --rdzv-backend static").minimum(0).common();
  table.add("--role", flags.role, "name of the ranks in prefixes of their lines");
  table.group("rendezvous");
  table.add("--master-addr", flags.master_addr, "machine 0, for --rdzv-backend static").common();
  table.add("--master-port", flags.master_port, "a free port there").minimum(0).maximum(65535).common();
  table
      .add("--rdzv-backend", flags.rdzv_backend,
           "static: the machines are numbered by --node-rank; c10d: by their names in order")
      .choices({"static", "c10d"})
      .refuse_value("etcd", "use c10d, which needs no other server")
      .refuse_value("etcd-v2", "use c10d, which needs no other server")
      .common();
  table
      .add("--rdzv-endpoint", flags.rdzv_endpoint,
           "HOST[:PORT] of the machine whose launcher hosts the rendezvous store")
      .common();
  table.add("--rdzv-id", flags.rdzv_id, "name of the job, the same on all machines").common();
  table.add("--rdzv-conf", flags.rdzv_conf, "KEY=VALUE,...: join_timeout, last_call_timeout (seconds), is_host");
  table.add("--standalone", flags.standalone, "one machine, a free port, a random name").common();
  table.add("--local-addr", flags.local_addr, "this machine's address for the others, if not its name");
  table.group("failures");
  table
      .add("--max-restarts", flags.max_restarts,
           "how many times in a row the whole group may be restarted without a step gained")
      .minimum(0)
      .common();
  table.add("--monitor-interval", flags.monitor_interval, "seconds between looks at the ranks").minimum(0.001);
  table
      .add("--hang-timeout", flags.hang_timeout,
           "least seconds without progress after which a stopped or sleeping rank is named and killed; 0: never")
      .minimum(0);
  table
      .add("--shutdown-timeout", flags.shutdown_timeout,
           "seconds from SIGTERM to SIGKILL. Unset: 30 after a failure; a run that is told to stop may save as long as "
           "it takes")
      .minimum(0);
  table.group("output");
  table.add("--log-dir", flags.log_dir, "folder for the ranks' files; a temporary one if unset").common();
  table
      .add("--redirects", flags.redirects,
           "into files only: 0 none, 1 stdout, 2 stderr, 3 both; or 0:3,1:1 by local rank")
      .alias("-r");
  table.add("--tee", flags.tee, "into files and here, after a prefix: as --redirects").alias("-t").common();
  table.add("--local-ranks-filter", flags.local_ranks_filter, "0,1: only these local ranks' output appears here");
  table.add("--log-line-prefix-template", flags.line_prefix, "with ${role_name}, ${local_rank}, ${rank}");
  table
      .add("--page", flags.page,
           "shows the run in a browser for as long as the launcher runs; needs a run with --save; prints an address")
      .common();
  table.add("--page-port", flags.page_port, "port of --page; 0: any free one").minimum(0).maximum(65535);
  table.add("--page-host", flags.page_host,
            "address at which --page listens; others than this machine's own 127.0.0.1 "
            "are reached without encryption");
  table
      .add("--alert-command", flags.alert_command,
           "run by sh for every incident (a rank failed or hangs, a save failed, ...), which it reads as a line of "
           "JSON; "
           "needs a run with --save")
      .value_name("COMMAND")
      .common();
  table.group("program");
  table.add("--module", flags.module, "the program is a name of a module, as pretrain_gpt").alias("-m");
  table.add("--no-python", flags.no_python, "the program is any executable, not a command of Espalier").common();
  table.add_without_effect("--start-method", Takes::kOne, "ranks are programs of their own in any case");
  table.add_without_effect("--use-env", Takes::kFlag, "ranks always find their place in the environment");
  table.add_without_effect("--run-path", Takes::kFlag, "there is no Python");
  table.add_without_effect("--event-log-handler", Takes::kOne, "events are not recorded");
  table.add_without_effect("--signals-to-handle", Takes::kOne, "SIGTERM, SIGINT, SIGHUP and SIGQUIT end the ranks");
  table.add_refused("--logs-specs", Takes::kOne, "use --redirects, --tee and --log-dir");
  table.add_refused("--numa-binding", Takes::kOne, "ranks are bound to their share of neighbouring cores without it");
  table.add_refused("--duplicate-stdout-filters", Takes::kList, "use --tee and grep");
  table.add_refused("--duplicate-stderr-filters", Takes::kList, "use --tee and grep");
  table.add_refused("--virtual-local-rank", Takes::kFlag, "ranks find their device by LOCAL_RANK");
}

// PET_NPROC_PER_NODE=8 is --nproc-per-node=8 in front of all flags, which then win.
Words words_of_variables(const OptionTable& table, const Variables& variables) {
  Words words;
  for (const auto& option : table.options()) {
    std::string name = "PET_";
    for (const char c : normal_option_name(option->name()))
      name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    const auto found = variables.find(name);
    if (found == variables.end() || option->effect() == OptionEffect::kRefused) continue;
    const std::string value = !option->is_flag() ? found->second : found->second == "0" ? "false" : "true";
    words.push_back(option->name() + "=" + value);
  }
  return words;
}

int64_t num_gpus(const Variables& variables) {
  const auto visible = variables.find("CUDA_VISIBLE_DEVICES");
  if (visible != variables.end()) return visible->second.empty() ? 0 : std::ssize(split(visible->second, ','));
  glob_t found = {};
  const int64_t count = glob("/dev/nvidia[0-9]*", 0, nullptr, &found) == 0 ? static_cast<int64_t>(found.gl_pathc) : 0;
  globfree(&found);
  return count;
}

int64_t count_local_ranks(const std::string& text, const Variables& variables, Problems& problems) {
  if (text == "cpu") return num_usable_cores();
  if (text == "auto" || text == "gpu") {
    const int64_t gpus = num_gpus(variables);
    if (gpus > 0) return gpus;
    if (text == "auto") return num_usable_cores();
    problems.add("--nproc-per-node gpu: this machine has no GPU (no /dev/nvidia0); use a number, cpu or auto");
    return 1;
  }
  const std::optional<int64_t> count = parse_whole(text);
  if (count && *count >= 1) return *count;
  problems.add("--nproc-per-node ", text, " is neither a number of at least 1 nor auto, cpu or gpu");
  return 1;
}

void read_nnodes(const std::string& text, LaunchOptions& options, Problems& problems) {
  const Words parts = split(text, ':');
  const std::optional<int64_t> low = parse_whole(parts.front()), high = parse_whole(parts.back());
  if (parts.size() > 2 || !low || !high || *low < 1 || *high < *low) {
    problems.add("--nnodes ", text, " is neither a number of machines nor MIN:MAX with 1 <= MIN <= MAX");
    return;
  }
  options.min_nodes = *low, options.max_nodes = *high;
}

// "host", "host:port", "[::1]:port".
void read_endpoint(const std::string& text, int default_port, LaunchOptions& options, Problems& problems) {
  std::string host = text, port;
  const size_t colon = text.rfind(':');
  const bool bracketed = text.starts_with("[");
  if (colon != std::string::npos && (bracketed ? text[colon - 1] == ']' : text.find(':') == colon)) {
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
  }
  if (host.starts_with("[") && host.ends_with("]")) host = host.substr(1, host.size() - 2);
  const std::optional<int64_t> number = port.empty() ? std::optional<int64_t>(default_port) : parse_whole(port);
  if (host.empty() || !number || *number > 65535)
    problems.add("--rdzv-endpoint ", text, " is not HOST or HOST:PORT");
  else
    options.store_host = host, options.store_port = static_cast<int>(*number);
}

void read_conf(const std::string& text, LaunchOptions& options, Problems& problems) {
  for (const std::string& entry : split(text, ',')) {
    if (strip(entry).empty()) continue;
    const size_t equals = entry.find('=');
    const std::string key = strip(entry.substr(0, equals));
    const std::string value = equals == std::string::npos ? "" : strip(entry.substr(equals + 1));
    char* end = nullptr;
    const double seconds = std::strtod(value.c_str(), &end);
    const bool is_number = !value.empty() && *end == '\0' && seconds >= 0;
    if (key == "is_host" && (value == "true" || value == "True" || value == "1"))
      options.hosts_store = true;
    else if (key == "is_host" && (value == "false" || value == "False" || value == "0"))
      options.hosts_store = false;
    else if ((key == "join_timeout" || key == "timeout") && is_number)
      options.join_timeout_seconds = seconds;
    else if (key == "last_call_timeout" && is_number)
      options.last_call_seconds = seconds;
    else
      problems.add("--rdzv-conf ", entry,
                   " is none of join_timeout=SECONDS, last_call_timeout=SECONDS, is_host=true|false");
  }
}

void read_rendezvous(const LaunchFlags& flags, const OptionTable& table, LaunchOptions& options, Problems& problems) {
  const auto given = [&](const char* name) { return table.find(name)->given(); };
  const bool is_c10d = flags.rdzv_backend == "c10d";
  const bool names_place = given("--master-port") || given("--rdzv-endpoint") || given("--rdzv-backend");
  options.run_id = flags.rdzv_id;
  read_conf(flags.rdzv_conf, options, problems);
  if (flags.standalone || (options.is_single_node() && !names_place)) {
    if (!options.is_single_node()) problems.add("--standalone is for one machine, --nnodes is ", flags.nnodes);
    if (flags.rdzv_id == "none") options.run_id = hex_digits(random_bytes(8));
    return;
  }
  options.rendezvous = is_c10d ? Rendezvous::kC10d : Rendezvous::kStatic;
  if (is_c10d) {
    if (flags.rdzv_endpoint.empty() && !options.is_single_node())
      problems.add("--rdzv-backend c10d with ", flags.nnodes, " machines needs --rdzv-endpoint HOST:PORT");
    else if (!flags.rdzv_endpoint.empty())
      read_endpoint(flags.rdzv_endpoint, kDefaultRendezvousPort, options, problems);
    if (given("--node-rank")) log_info("--node-rank is ignored: c10d numbers the machines by their names in order");
    return;
  }
  options.store_host = flags.master_addr, options.store_port = static_cast<int>(flags.master_port);
  if (given("--rdzv-endpoint"))
    read_endpoint(flags.rdzv_endpoint, static_cast<int>(flags.master_port), options, problems);
  options.master_port = options.is_single_node() ? options.store_port : 0;
  if (options.min_nodes != options.max_nodes)
    problems.add("--nnodes ", flags.nnodes, " is a range: that needs --rdzv-backend c10d");
  if (flags.node_rank >= options.max_nodes)
    problems.add("--node-rank ", flags.node_rank, " is none of ", options.max_nodes, " machines, which count from 0");
}

void read_filter(const std::string& text, LaunchOptions& options, Problems& problems) {
  for (const std::string& entry : split(text, ',')) {
    if (strip(entry).empty()) continue;
    const std::optional<int64_t> rank = parse_whole(strip(entry));
    if (rank)
      options.local_ranks_filter.insert(*rank);
    else
      problems.add("--local-ranks-filter ", text, " is not a list of local ranks (0,1)");
  }
}

std::optional<Streams> parse_streams(const std::string& text) {
  const std::optional<int64_t> value = parse_whole(text);
  if (!value || *value > 3) return std::nullopt;
  return Streams{(*value & 1) != 0, (*value & 2) != 0};
}

}  // namespace

Streams StreamRule::of(int64_t local_rank) const {
  const auto found = by_local_rank.find(local_rank);
  return found == by_local_rank.end() ? all : found->second;
}

// Up to the first word that is no option and no option's value.
size_t num_option_words(const OptionTable& table, const Words& arguments) {
  size_t at = 0;
  while (at < arguments.size() && arguments[at].starts_with("-") && arguments[at] != "--") {
    const std::string& word = arguments[at++];
    if (word.find('=') != std::string::npos) continue;
    const Option* option = table.find(word);
    if (option != nullptr && !option->is_flag() && at < arguments.size()) ++at;
  }
  return at;
}

size_t num_launch_option_words(const Words& arguments) {
  LaunchFlags flags;
  OptionTable table("espalier launch", "");
  add_rows(table, flags);
  return num_option_words(table, arguments);
}

StreamRule parse_stream_rule(const std::string& option, const std::string& text, Problems& problems) {
  StreamRule rule;
  if (const auto streams = parse_streams(text)) {
    rule.all = *streams;
    return rule;
  }
  for (const std::string& entry : split(text, ',')) {
    const size_t colon = entry.find(':');
    const auto rank = parse_whole(entry.substr(0, colon));
    const auto streams = colon == std::string::npos ? std::nullopt : parse_streams(entry.substr(colon + 1));
    if (rank && streams)
      rule.by_local_rank[*rank] = *streams;
    else
      problems.add(option, " ", text,
                   " is neither 0, 1, 2 or 3 (none, stdout, stderr, both) nor a list by local rank, ", "as 0:3,1:1");
    if (!rank || !streams) break;
  }
  return rule;
}

std::optional<LaunchOptions> read_launch_options(const Words& arguments, const Variables& variables) {
  LaunchFlags flags;
  OptionTable table("espalier launch",
                    "Starts ranks on this machine and watches them: espalier launch OPTIONS train gpt ... "
                    "The options are torchrun's.");
  add_rows(table, flags);
  table.unknown_options_mean("options of the run come after its command: espalier launch OPTIONS train gpt OPTIONS");
  table.known_elsewhere({"-n", "-np", "--np", "--nproc", "--num-gpus", "--num-processes", "--ntasks-per-node"},
                        "--nproc-per-node");
  table.known_elsewhere({"--num-nodes", "--num-machines", "--nodes", "-N"}, "--nnodes");
  table.known_elsewhere({"--machine-rank"}, "--node-rank");
  table.known_elsewhere({"--main-process-ip"}, "--master-addr");
  table.known_elsewhere({"--main-process-port"}, "--master-port");
  table.known_elsewhere({"--hostfile", "-H", "--host", "--include"},
                        "start the same line on each machine, with --nnodes and --node-rank");
  const size_t num_own = num_option_words(table, arguments);
  Words own = words_of_variables(table, variables);
  own.insert(own.end(), arguments.begin(), arguments.begin() + static_cast<std::ptrdiff_t>(num_own));
  Problems problems;
  if (!table.parse(own, problems)) return std::nullopt;
  LaunchOptions options;
  options.program.assign(arguments.begin() + static_cast<std::ptrdiff_t>(num_own), arguments.end());
  if (!options.program.empty() && options.program.front() == "--") options.program.erase(options.program.begin());
  if (options.program.empty())
    problems.add(
        "nothing to start: after the options comes what the ranks run, as train gpt ... or pretrain_gpt.py ...");
  options.num_local_ranks = count_local_ranks(flags.nproc_per_node, variables, problems);
  read_nnodes(flags.nnodes, options, problems);
  read_rendezvous(flags, table, options, problems);
  options.node_rank = flags.node_rank;
  options.local_address = flags.local_addr;
  options.max_restarts = flags.max_restarts;
  options.monitor_interval_seconds = flags.monitor_interval;
  options.hang_timeout_seconds = flags.hang_timeout;
  options.shutdown_timeout_seconds = flags.shutdown_timeout;
  options.redirects = parse_stream_rule("--redirects", flags.redirects, problems);
  options.tee = parse_stream_rule("--tee", flags.tee, problems);
  options.log_dir = flags.log_dir;
  std::error_code error;
  if (std::filesystem::exists(flags.log_dir, error) && !std::filesystem::is_directory(flags.log_dir, error))
    problems.add("--log-dir ", flags.log_dir, " is a file; name a folder, which is made if it is not there");
  options.role = flags.role;
  options.line_prefix = flags.line_prefix;
  options.runs_other_program = flags.no_python;
  if (flags.page) options.page = PageOptions{.host = flags.page_host, .port = static_cast<int>(flags.page_port)};
  for (const char* name : {"--page-port", "--page-host"})
    if (!flags.page && table.find(name)->given()) problems.add(name, " belongs to --page, which is not given");
  options.alert_command = flags.alert_command;
  read_filter(flags.local_ranks_filter, options, problems);
  problems.raise();
  return options;
}

}  // namespace espalier::launch
