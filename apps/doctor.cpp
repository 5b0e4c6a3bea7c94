// espalier doctor: what this machine has for training, what works and what does not.
#include <dirent.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/console.h"
#include "base/error.h"
#include "base/format.h"
#include "base/options.h"
#include "base/shell.h"
#include "base/version.h"
#include "become_engine.h"
#include "commands.h"
#include "doctor_nodes.h"
#include "machine_checks.h"
#include "print_json.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;
using Verdict = Finding::Verdict;

void append(std::vector<Finding>& all, const std::vector<Finding>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

struct EngineReport {
  int exit_code = -1;
  std::string output;
};

// What espalier-engine says of itself: it has libtorch, the kernels and the CUDA plugin.
EngineReport ask_engine() {
  EngineReport report;
  std::FILE* pipe = popen((shell_word(path_beside_this_program("espalier-engine")) + " probe 2>&1").c_str(), "r");
  if (pipe == nullptr) return report;
  char buffer[4096];
  while (const size_t got = std::fread(buffer, 1, sizeof buffer, pipe)) report.output.append(buffer, got);
  const int status = pclose(pipe);
  report.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return report;
}

// "NVIDIA UNIX x86_64 Kernel Module  550.54.15  ..."
std::string driver_version() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line;
  std::getline(file, line);
  return line.empty() ? "" : strip(line.substr(line.find(':') + 1));
}

int num_device_files() {
  int count = 0;
  DIR* folder = opendir("/dev");
  if (folder == nullptr) return 0;
  while (const dirent* entry = readdir(folder)) {
    const std::string name = entry->d_name;
    count +=
        name.starts_with("nvidia") && name.size() > 6 && name.find_first_not_of("0123456789", 6) == std::string::npos;
  }
  closedir(folder);
  return count;
}

std::vector<Finding> check_gpu(const Json& probe) {
  const int64_t shown = probe.value("gpus", int64_t{0});
  const int devices = num_device_files();
  const std::string driver = driver_version(), plugin = probe.value("cuda_plugin", std::string());
  if (shown == 0 && devices == 0 && driver.empty())
    return {{"GPU", Verdict::kGood, "none: training runs on the CPU", ""}};
  std::vector<Finding> findings = {
      {"GPU", shown > 0 ? Verdict::kGood : Verdict::kWarning,
       concat(shown, " shown by the driver, ", devices, " device files", driver.empty() ? "" : ", " + driver),
       shown > 0 ? ""
                 : "the driver (libcuda.so.1) is missing or shows none to this process: see CUDA_VISIBLE_DEVICES"}};
  const bool loads = plugin == "loads";
  findings.push_back({"CUDA plugin", loads ? Verdict::kGood : Verdict::kWarning, plugin.empty() ? "not asked" : plugin,
                      loads ? "" : "without it training stays on the CPU (docs/gpu.md)"});
  return findings;
}

std::vector<Finding> check_engine() {
  const EngineReport report = ask_engine();
  // Libraries may say something before it.
  const size_t begin = std::min(report.output.rfind("{\"libtorch\""), report.output.size());
  const Json probe = Json::parse(report.output.substr(begin), nullptr, /*allow_exceptions=*/false);
  if (report.exit_code != 0 || !probe.is_object())
    return {{"engine", Verdict::kProblem,
             concat("espalier-engine does not start (exit code ", report.exit_code, "): ", strip(report.output)),
             "build or install it again with scripts/setup; it belongs next to espalier"}};
  const std::string best = probe.value("best_kernels", "");
  std::vector<Finding> findings = {
      {"engine", Verdict::kGood, concat("starts; libtorch ", probe.value("libtorch", "")), ""},
      {"kernels", Verdict::kGood, probe.value("kernels", ""), ""}};
  if (findings[1].text != best) {
    findings[1].verdict = Verdict::kWarning;
    findings[1].text += concat(", this machine reaches ", best);
    findings[1].advice = "ESPALIER_CPU_ISA lowers them; unset it for full speed";
  }
  append(findings, check_gpu(probe));
  return findings;
}

const char* word_of(Verdict verdict) {
  return verdict == Verdict::kGood ? "ok" : verdict == Verdict::kWarning ? "warning" : "problem";
}

std::string line_of(const Finding& finding, size_t topic_width) {
  const Style style = finding.verdict == Verdict::kGood      ? Style::kGreen
                      : finding.verdict == Verdict::kWarning ? Style::kYellow
                                                             : Style::kRed;
  const size_t indent = 9 + topic_width + 2;
  const size_t width = std::max<size_t>(indent + 20, static_cast<size_t>(terminal_width(Stream::kOutput, 100)));
  std::string text = styled(Stream::kOutput, style, format_printf("%-7s", word_of(finding.verdict))) + "  " +
                     finding.topic + std::string(topic_width + 2 - finding.topic.size(), ' ') +
                     wrap_text(finding.text, indent, indent, width) + "\n";
  if (!finding.advice.empty())
    text += std::string(indent, ' ') + wrap_text("-> " + finding.advice, indent, indent, width) + "\n";
  return text;
}

void print(const std::vector<Finding>& findings, bool can_start, bool json) {
  if (json) {
    Json list = Json::array();
    for (const Finding& finding : findings)
      list.push_back({{"topic", finding.topic},
                      {"verdict", word_of(finding.verdict)},
                      {"text", finding.text},
                      {"advice", finding.advice}});
    const Json object = {{"can_train", can_start}, {"version", kVersion}, {"findings", list}};
    print_json(object);
    return;
  }
  size_t width = 0, warnings = 0;
  for (const Finding& finding : findings) width = std::max(width, finding.topic.size());
  for (const Finding& finding : findings) {
    std::fputs(line_of(finding, width).c_str(), stdout);
    warnings += finding.verdict == Verdict::kWarning;
  }
  std::printf("\n%s%s\n", can_start ? "Training can start here" : "Training cannot start here",
              warnings > 0 ? concat(", ", warnings, warnings == 1 ? " warning." : " warnings.").c_str() : ".");
}

}  // namespace

int doctor_main(const std::vector<std::string>& arguments) {
  std::vector<std::string> folders;
  bool json = false, nodes = false;
  NodesOptions options_of_nodes;
  OptionTable table("espalier doctor",
                    "Shows what this machine has for training, and says what works and what does not. Exit code 0 only "
                    "where training can start.");
  table.positional("FOLDER", folders, "folders for data and runs; the current one by default", 0, SIZE_MAX);
  table.add("--json", json, "one JSON object: can_train, findings (topic, verdict, text, advice)");
  table.add("--nodes", nodes,
            "compares the machines of a job, one process on each: espalier launch --nnodes N doctor --nodes, or srun; "
            "prints those to exclude");
  table.add("--seconds", options_of_nodes.seconds_each, "with --nodes: of each measurement").minimum(0.05).maximum(600);
  table.add("--min-free", options_of_nodes.min_free, "with --nodes: what the folders must have left: 500GiB")
      .default_text("1 GiB");
  if (!table.parse(arguments)) return 0;
  if (folders.empty()) folders.push_back(".");
  if (nodes) return doctor_nodes(folders, options_of_nodes, json);
  std::vector<Finding> findings = {{"version", Verdict::kGood, concat("espalier ", kVersion), ""}};
  append(findings, check_processor());
  append(findings, check_memory());
  append(findings, check_engine());
  append(findings, check_limits());
  for (const std::string& folder : folders) append(findings, check_folder(folder));
  std::vector<Finding> shared = check_folder("/dev/shm");
  for (Finding& finding : shared) {
    finding.topic = "shared memory";
    if (finding.verdict != Verdict::kProblem) continue;
    finding.verdict = Verdict::kWarning;  // ranks of one machine then talk by TCP
    finding.advice = "several processes of one machine would exchange tensors through TCP, which is slower";
  }
  append(findings, shared);
  append(findings, check_network_and_clock());
  append(findings, check_schedulers());
  bool can_start = true;
  for (const Finding& finding : findings) can_start = can_start && finding.verdict != Verdict::kProblem;
  print(findings, can_start, json);
  return can_start ? 0 : static_cast<int>(ExitCode::kFailed);
}

}  // namespace espalier
