// espalier doctor: what this machine has for training, what works and what does not.
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/become_engine.h"
#include "apps/commands.h"
#include "apps/doctor/machine_checks.h"
#include "apps/doctor/nodes.h"
#include "apps/print_json.h"
#include "base/console.h"
#include "base/error.h"
#include "base/format.h"
#include "base/options.h"
#include "base/shell.h"
#include "base/version.h"
#include "launch/gpu_inventory.h"

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

// `probe`: what the engine said; no object where it does not start.
std::vector<Finding> check_gpu(const launch::GpuInventory& gpus, const Json& probe) {
  const bool asked = probe.is_object();
  const int64_t shown = asked ? probe.value("gpus", int64_t{0}) : 0;
  if (shown == 0 && gpus.is_empty()) return {{"GPU", Verdict::kGood, "none: training runs on the CPU", ""}};
  const bool good = shown > 0 && gpus.trouble.empty();
  std::vector<Finding> findings = {
      {"GPU", good ? Verdict::kGood : Verdict::kWarning,
       concat(gpus.is_empty() ? "" : launch::to_text(gpus) + "; ",
              asked ? concat(shown, " shown to this process by libcuda.so.1") : "the engine could not be asked"),
       good || !asked ? ""
       : shown == 0   ? "the driver (libcuda.so.1) is missing or shows none to this process: see CUDA_VISIBLE_DEVICES"
                      : "the driver and its library disagree: is one of them of another version?"}};
  if (!asked) return findings;
  const std::string plugin = probe.value("cuda_plugin", std::string());
  const bool loads = plugin == "loads";
  findings.push_back({"CUDA plugin", loads ? Verdict::kGood : Verdict::kWarning, plugin.empty() ? "not asked" : plugin,
                      loads ? "" : "without it training stays on the CPU (docs/gpu.md)"});
  return findings;
}

std::vector<Finding> check_engine(const launch::GpuInventory& gpus) {
  const EngineReport report = ask_engine();
  // Libraries may say something before it.
  const size_t begin = std::min(report.output.rfind("{\"libtorch\""), report.output.size());
  const Json probe = Json::parse(report.output.substr(begin), nullptr, /*allow_exceptions=*/false);
  if (report.exit_code != 0 || !probe.is_object()) {
    std::vector<Finding> findings = {
        {"engine", Verdict::kProblem,
         concat("espalier-engine does not start (exit code ", report.exit_code, "): ", strip(report.output)),
         "build or install it again with scripts/setup; it belongs next to espalier"}};
    append(findings, check_gpu(gpus, Json()));
    return findings;
  }
  const std::string best = probe.value("best_kernels", "");
  std::vector<Finding> findings = {
      {"engine", Verdict::kGood, concat("starts; libtorch ", probe.value("libtorch", "")), ""},
      {"kernels", Verdict::kGood, probe.value("kernels", ""), ""}};
  if (findings[1].text != best) {
    findings[1].verdict = Verdict::kWarning;
    findings[1].text += concat(", this machine reaches ", best);
    findings[1].advice = "ESPALIER_CPU_ISA lowers them; unset it for full speed";
  }
  append(findings, check_gpu(gpus, probe));
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

void print(const std::vector<Finding>& findings, const launch::GpuInventory& gpus, bool can_start, bool json) {
  if (json) {
    Json list = Json::array();
    for (const Finding& finding : findings)
      list.push_back({{"topic", finding.topic},
                      {"verdict", word_of(finding.verdict)},
                      {"text", finding.text},
                      {"advice", finding.advice}});
    Json listed = Json::array();
    for (const launch::GpuInfo& gpu : gpus.gpus)
      listed.push_back({{"name", gpu.name}, {"memory_bytes", gpu.memory_bytes}, {"used_bytes", gpu.used_bytes}});
    const Json object = {{"can_train", can_start},
                         {"version", kVersion},
                         {"gpu_driver", gpus.driver},
                         {"gpus", listed},
                         {"findings", list}};
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
  table.add("--json", json, "one JSON object: can_train, gpus and gpu_driver, findings (topic, verdict, text, advice)");
  table.add("--nodes", nodes,
            "compares the machines of a job, one process on each: espalier launch --nnodes N doctor --nodes, or srun; "
            "prints those to exclude");
  table.add("--seconds", options_of_nodes.seconds_each, "with --nodes: of each measurement").minimum(0.05).maximum(600);
  table.add("--min-free", options_of_nodes.min_free, "with --nodes: what the folders must have left: 500GiB")
      .default_text("1 GiB");
  if (!table.parse(arguments)) return 0;
  if (folders.empty()) folders.push_back(".");
  if (nodes) return doctor_nodes(folders, options_of_nodes, json);
  const launch::GpuInventory gpus = launch::list_gpus();
  std::vector<Finding> findings = {{"version", Verdict::kGood, concat("espalier ", kVersion), ""}};
  append(findings, check_processor());
  append(findings, check_memory());
  append(findings, check_engine(gpus));
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
  print(findings, gpus, can_start, json);
  return can_start ? 0 : static_cast<int>(ExitCode::kFailed);
}

}  // namespace espalier
