#include "apps/engine/replay.h"

#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "apps/options/replay_options.h"
#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/log.h"
#include "base/version.h"
#include "cuda/cuda.h"
#include "dist/local_ranks.h"
#include "families/registry.h"
#include "report/json_line.h"
#include "store/manifest.h"
#include "train/job_state.h"
#include "train/parity.h"
#include "train/replay.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;
using Words = std::vector<std::string>;

constexpr double kSecondsForAReplay = 24 * 3600;  // a limit against hanging for good
constexpr const char* kFormat = "espalier_recording";

// What a layout's flags say by being there, and how the run's own stages divided the layers.
void forget_layout(config::ParallelConfig& parallel) {
  parallel.num_layers_per_virtual_pipeline_stage.reset();
  parallel.sequence_parallel = parallel.enable_zbh1_pipeline = parallel.use_distributed_optimizer = false;
  parallel.pp_partition_method.clear();
}

// The options of the step, in the layout of the replay; nothing is saved or reported.
void read_run(const ReplayOptions& options, const ReplayPlan& plan, config::RunConfig& config, OptionTable& table) {
  Problems problems;
  const config::Family& family = *plan.run.config.family;
  table.say_notes(false);
  config::add_options(family, table, config);
  const std::string& file = plan.run.options_from;
  const bool is_manifest = std::filesystem::path(file).filename() == store::kManifestName;
  table.parse_toml(
      is_manifest ? store::read_manifest(std::filesystem::path(file).parent_path()).config : read_file(file), file,
      problems);
  Words words = options.more;
  if (!plan.own_layout) {
    forget_layout(config.parallel);
    for (const std::string& flag : plan::layout_flags(plan.layout, family.num_layers(plan.run.config.model)))
      words.push_back(flag);
  }
  if (!words.empty()) table.parse(words, problems);
  const Words overrides = config.checkpoint.overrides;
  config.checkpoint = {};
  config.checkpoint.overrides = overrides;
  config.training.profile_step_start.reset();
  config.training.profile_step_end.reset();
  config.data.eval_only = false;
  config.num_ranks = plan.layout.grid.num_ranks();
  config::resolve(config, table, problems);
  problems.raise();
  if (plan.from) config.checkpoint.load = plan.from->folder.string();
  if (!plan.from && plan.run.config.vocabulary.padded_size > 0)
    config.tokenizer.pad_vocab_size_to = plan.run.config.vocabulary.padded_size;
  const int64_t num_cores = std::max<int64_t>(1, std::thread::hardware_concurrency());
  config.training.num_threads =
      plan.num_threads.value_or(std::max<int64_t>(1, num_cores / plan.layout.grid.num_ranks()));
}

// One rank computes in this process, and may use a GPU; several are forked, on the CPU.
std::vector<train::ReplayedStep> run_ranks(const config::RunConfig& config, const OptionTable& table,
                                           const ReplayPlan& plan, const train::ReplayRequest& request) {
  const auto say_attention = [&] {
    if (config.training.attention_backend == spec::AttentionBackend::kCudnn)
      log_info("the run's attention was cuDNN's; on the CPU it is Espalier's own, with other last bits");
  };
  if (plan.layout.grid.num_ranks() == 1) {
    const cuda::Placement compute = cuda::place_process(config.parallel.device, 0);
    log_info("computing on ", compute.description);
    if (compute.device.is_cpu())
      say_attention();
    else
      cuda::check_attention_backend(config.training.attention_backend, compute);
    dist::Grid grid;
    grid.device = compute.device;
    return {train::run_for_replay(config, table, request, grid)};
  }
  say_attention();
  const std::vector<std::string> texts =
      dist::run_ranks(plan.layout.grid,
                      [&](const dist::Grid& grid) {
                        if (grid.rank != 0) set_log_level(LogLevel::kQuiet);
                        return train::to_text(train::run_for_replay(config, table, request, grid));
                      },
                      {.timeout_seconds = kSecondsForAReplay,
                       .num_threads = static_cast<int>(*config.training.num_threads),
                       .shared_stages = config::shared_stages(config),
                       .shared_memory = plan.shared_memory});
  std::vector<train::ReplayedStep> ranks;
  for (const std::string& text : texts) ranks.push_back(train::replayed_from_text(text));
  return ranks;
}

// By step; of those steps alone.
std::map<int64_t, std::string> recorded_lines(const std::filesystem::path& run, int64_t first, int64_t last) {
  std::map<int64_t, std::string> lines;
  std::ifstream file(run / "metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    int64_t step = 0;
    bool is_step = false;
    const bool whole = report::for_each_member(line, [&](std::string_view key, std::string_view value) {
      if (key == "step" && std::isfinite(report::number_of(value)))
        step = static_cast<int64_t>(report::number_of(value));
      is_step = is_step || key == "sample_hash";
    });
    if (whole && is_step && first <= step && step <= last) lines[step] = line;
  }
  return lines;
}

struct Outcome {
  int64_t num_compared_records = 0;
  Words record_differences;
  double distance = 0;                 // of losses and norms
  std::optional<int64_t> first_other;  // step whose record differs
  int64_t num_tensors = 0;
  Words different_tensors;
  std::vector<train::Observation> observations;
  Words bad_documents;
  std::optional<train::RecordingComparison> comparison;
  std::string recorded_by;  // what it is compared with
};

void compare_records(const std::vector<std::string>& replayed, const ReplayPlan& plan, int64_t step, Outcome& outcome) {
  const auto recorded = recorded_lines(plan.run.folder, plan.from ? plan.from->step + 1 : 1, step);
  for (const std::string& line : replayed) {
    const auto there = recorded.find(Json::parse(line).at("step").get<int64_t>());
    if (there == recorded.end()) continue;
    ++outcome.num_compared_records;
    const Words differences = train::record_differences(line, there->second);
    if (!differences.empty() && !outcome.first_other) outcome.first_other = there->first;
    for (const std::string& difference : differences) outcome.record_differences.push_back(difference);
    outcome.distance = std::max(outcome.distance, train::record_distance(line, there->second));
  }
}

Outcome judge(std::vector<train::ReplayedStep> ranks, const ReplayPlan& plan, int64_t step) {
  Outcome outcome;
  compare_records(ranks[0].records, plan, step, outcome);
  std::set<std::string> different;
  for (train::ReplayedStep& rank : ranks) {
    outcome.num_tensors += rank.num_tensors;
    for (std::string& name : rank.different) {
      if (different.insert(name).second) outcome.different_tensors.push_back(std::move(name));
    }
    for (train::Observation& one : rank.observations) outcome.observations.push_back(std::move(one));
  }
  train::sort(outcome.observations);
  for (const train::Observation& one : outcome.observations) {
    if (one.num_not_finite == 0) continue;
    outcome.bad_documents = ranks[static_cast<size_t>(one.rank)].bad_documents;
    break;
  }
  return outcome;
}

void write_recording(const std::string& file, const ReplayPlan& plan, int64_t step,
                     const std::vector<train::Observation>& observations) {
  std::string text = Json{{kFormat, 1},
                          {"step", step},
                          {"run", plan.run.folder.string()},
                          {"layout", plan::to_string(plan.layout)},
                          {"program", concat("espalier ", kVersion)},
                          {"libtorch", kLibtorchVersion},
                          {"instruction_set", train::instruction_set()}}
                         .dump() +
                     "\n";
  for (const train::Observation& one : observations) text += train::to_json(one) + "\n";
  write_file_atomically(file, text);
}

struct Recording {
  std::string by;  // "espalier 0.1.0, libtorch 2.11.0, avx512"
  std::vector<train::Observation> observations;
};

Recording read_recording(const std::string& file, int64_t step) {
  std::ifstream stream(file);
  std::string line;
  const auto refuse = [&](const std::string& found) {
    throw UserError(concat("--compare ", file, ": expected what 'espalier replay --record' wrote of step ", step,
                           ", found ", found),
                    ExitCode::kBadData);
  };
  if (!stream) throw UserError(concat("--compare ", file, ": no such file"), ExitCode::kMissingInput);
  std::getline(stream, line);
  const Json head = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!head.is_object() || !head.contains(kFormat)) refuse("another file");
  if (head.value("step", int64_t{0}) != step) refuse(concat("step ", head.value("step", int64_t{0})));
  Recording recording{.by = concat(head.value("program", "?"), ", libtorch ", head.value("libtorch", "?"), ", ",
                                   head.value("instruction_set", "?"), ", layout ", head.value("layout", "?")),
                      .observations = {}};
  while (std::getline(stream, line)) recording.observations.push_back(train::observation_from_json(line, file));
  if (recording.observations.empty()) refuse("no operation");
  return recording;
}

const train::Observation* first_not_finite(const Outcome& outcome) {
  for (const train::Observation& one : outcome.observations)
    if (one.num_not_finite > 0) return &one;
  return nullptr;
}

// In another layout sums run in another order: then what parity allows between layouts is good.
bool is_good(const Outcome& outcome, const ReplayPlan& plan, plan::Precision precision) {
  const bool compares_equal =
      !outcome.comparison || !plan.is_exact || outcome.comparison->num_equal == outcome.comparison->num_compared;
  if (plan.is_exact) return outcome.record_differences.empty() && outcome.different_tensors.empty() && compares_equal;
  return outcome.distance <= train::parity_tolerance(precision).first_norm;
}

std::string layout_text(const ReplayPlan& plan) {
  return concat(plan::to_string(plan.layout),
                plan.own_layout ? ", the run's"
                : plan.is_exact ? concat(", of the same bits as the run's, ", spec::to_string(*plan.run.layout))
                                : std::string());
}

std::string pair_text(const train::RecordingComparison::Pair& pair) {
  return concat(train::describe(pair.mine), ": norm ", format_shortest(pair.mine.norm), " here, ",
                format_shortest(pair.other.norm), " there",
                pair.mine.type == pair.other.type ? "" : concat(" (", pair.mine.type, " and ", pair.other.type, ")"));
}

void print_text(const Outcome& outcome, const ReplayPlan& plan, int64_t step) {
  constexpr size_t kShown = 8;
  const auto say = [](const std::string& line) { std::printf("%s\n", line.c_str()); };
  const auto list = [&](const Words& lines) {
    for (size_t at = 0; at < std::min(lines.size(), kShown); ++at) say("  " + lines[at]);
    if (lines.size() > kShown) say(concat("  and ", lines.size() - kShown, " more"));
  };
  say(concat("step ", step, " from ", plan.from ? plan.from->folder.string() : "the initialization", ", layout ",
             layout_text(plan)));
  if (outcome.num_compared_records == 0)
    say("records: none of these steps");
  else if (outcome.record_differences.empty())
    say(concat("records: loss, gradient norm and all else of ", outcome.num_compared_records,
               outcome.num_compared_records == 1 ? " step" : " steps", " are equal to the bit"));
  else
    say(concat("records: losses and gradient norms differ by at most ", format_printf("%.3g", outcome.distance),
               plan.is_exact ? "" : ", and the layout is not the run's"));
  list(outcome.record_differences);
  if (outcome.first_other.value_or(step) < step)
    say(concat("the first step that differs is ", *outcome.first_other, ": --step ", *outcome.first_other,
               " shows where that begins"));
  if (!plan.after) say(concat("tensors: the run has no checkpoint of step ", step));
  if (plan.after && outcome.different_tensors.empty()) say("tensors: all are equal to the bit");
  if (!outcome.different_tensors.empty())
    say(concat("tensors: ", outcome.different_tensors.size(), " are not those of ", plan.after->folder.string(), ":"));
  list(outcome.different_tensors);
  if (const train::Observation* const bad = first_not_finite(outcome)) {
    say(concat("first value that is not finite: ", train::describe(*bad), ": ", train::describe_not_finite(*bad)));
    list(outcome.bad_documents);
  }
  if (!outcome.comparison) return;
  const train::RecordingComparison& found = *outcome.comparison;
  say(concat("recording of ", outcome.recorded_by, "; here ", concat("espalier ", kVersion), ", libtorch ",
             kLibtorchVersion, ", ", train::instruction_set()));
  say(concat(
      "recording: ", found.num_equal, " of ", found.num_compared, " tensors are equal to the bit",
      found.num_other_shape > 0 ? concat("; ", found.num_other_shape, " are not in it, or split otherwise") : ""));
  if (found.first_different) say("first that differs: " + pair_text(*found.first_different));
  if (found.largest)
    say(concat("largest difference of norms, ", format_printf("%.3g", found.largest_difference), ": ",
               pair_text(*found.largest)));
}

Json to_json(const Outcome& outcome, const ReplayPlan& plan, int64_t step, bool good) {
  Json json = {{"step", step},
               {"from", plan.from ? Json(plan.from->step) : Json()},
               {"layout", plan::to_string(plan.layout)},
               {"own_layout", plan.own_layout},
               {"exact", plan.is_exact},
               {"equal", good},
               {"steps_compared", outcome.num_compared_records},
               {"record_differences", outcome.record_differences},
               {"distance", outcome.distance},
               {"tensors_compared", plan.after.has_value()},
               {"different_tensors", outcome.different_tensors}};
  const auto observation = [](const train::Observation& one) { return Json::parse(train::to_json(one)); };
  if (const train::Observation* const bad = first_not_finite(outcome))
    json["not_finite"] = {
        {"what", observation(*bad)}, {"where", train::describe_not_finite(*bad)}, {"documents", outcome.bad_documents}};
  if (outcome.comparison) {
    const train::RecordingComparison& found = *outcome.comparison;
    json["recording"] = {{"by", outcome.recorded_by},
                         {"compared", found.num_compared},
                         {"equal", found.num_equal},
                         {"other_shape", found.num_other_shape},
                         {"largest_difference", found.largest_difference}};
    if (found.first_different)
      json["recording"]["first_different"] = {{"here", observation(found.first_different->mine)},
                                              {"there", observation(found.first_different->other)}};
  }
  return json;
}

}  // namespace

int replay(const std::vector<std::string>& arguments) {
  ReplayOptions options;
  Problems problems;
  if (!read_replay_options(arguments, options, problems)) return 0;
  problems.raise();
  const ReplayPlan plan = plan_replay(options);
  config::RunConfig config;
  OptionTable table("espalier replay", "");
  read_run(options, plan, config, table);
  if (options.json) set_log_level(LogLevel::kWarning);
  Recording other;
  if (!options.compare.empty()) other = read_recording(options.compare, options.step);
  const train::ReplayRequest request{.step = options.step,
                                     .checkpoint_after = plan.after ? plan.after->folder : std::filesystem::path()};
  Outcome outcome = judge(run_ranks(config, table, plan, request), plan, options.step);
  if (!options.record.empty()) write_recording(options.record, plan, options.step, outcome.observations);
  if (!options.compare.empty()) outcome.comparison = train::compare(outcome.observations, other.observations);
  outcome.recorded_by = other.by;
  const bool good = is_good(outcome, plan, config.training.precision);
  if (options.json)
    std::printf("%s\n", to_json(outcome, plan, options.step, good).dump().c_str());
  else
    print_text(outcome, plan, options.step);
  return good ? 0 : 1;
}

}  // namespace espalier
