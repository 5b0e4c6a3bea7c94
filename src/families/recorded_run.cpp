#include "families/recorded_run.h"

#include <algorithm>
#include <cmath>
#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "families/registry.h"
#include "plan/layout.h"
#include "report/json_line.h"
#include "report/run_reader.h"
#include "store/manifest.h"
#include "store/run_folder.h"

namespace espalier::families {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

constexpr const char* kLayoutWords = "in layout ";  // of the event "start"

fs::path run_folder_of(const fs::path& folder) {
  const fs::path plain = folder.filename().empty() ? folder.parent_path() : folder;
  const bool is_step = store::step_of_folder(plain.filename().string()).has_value();
  const fs::path run = is_step ? (plain.has_parent_path() ? plain.parent_path() : fs::path(".")) : plain;
  if (!report::is_run_folder(run))
    throw UserError(report::describe_no_run(run) + ". Give the run's --save folder.", ExitCode::kMissingInput);
  return run;
}

// Of the attempt that trained `step`, or of the last one.
std::optional<spec::GridShape> layout_by_events(const fs::path& run, std::optional<int64_t> step) {
  std::optional<spec::GridShape> layout;
  for (const report::RunEvent& event : report::read_run(run).events) {
    const size_t at = event.detail.find(kLayoutWords);
    if (event.event != "start" || at == std::string::npos || (step && event.step >= *step)) continue;
    layout = plan::parse_layout(event.detail.substr(at + std::string(kLayoutWords).size())).grid;
  }
  return layout;
}

// "gpt" of "espalier train gpt --num-layers 2".
const config::Family& family_by_command(const fs::path& run) {
  const fs::path file = run / "command.txt";
  const Words words = fs::exists(file) ? split_blanks(read_file(file)) : Words{};
  const auto train = std::find(words.begin(), words.end(), "train");
  const config::Family* const family =
      train == words.end() || train + 1 == words.end() ? nullptr : find_family(*(train + 1));
  if (family == nullptr)
    throw UserError(concat(file.string(), ": expected 'espalier train FAMILY ...', which says what the run trains (",
                           family_names(), "), found ", words.empty() ? "nothing" : concat("'", words[0], " ...'"),
                           ". The run has no checkpoint that says so either."),
                    ExitCode::kBadData);
  return *family;
}

void read_last_options(const fs::path& file, const config::Family& family, const Words& more,
                       config::RunConfig& config) {
  OptionTable table("espalier train", "");
  Problems problems;
  table.say_notes(false);
  config::add_options(family, table, config);
  table.parse_toml(read_file(file), file.string(), problems);
  if (!more.empty()) table.parse(more, problems);
  config::resolve(config, table, problems);
  problems.raise(ExitCode::kBadData);
}

// Null where neither checkpoint nor config.toml has the options of the step.
const store::StepEntry* checkpoint_with_options(const std::vector<store::StepEntry>& checkpoints,
                                                std::optional<int64_t> step, bool has_last_options) {
  if (step)
    for (const store::StepEntry& entry : checkpoints)
      if (entry.step >= *step) return &entry;
  return has_last_options || checkpoints.empty() ? nullptr : &checkpoints.back();
}

}  // namespace

RecordedRun read_recorded_run(const fs::path& folder, std::optional<int64_t> step, const Words& more) {
  RecordedRun run{.folder = run_folder_of(folder)};
  const std::vector<store::StepEntry> checkpoints = store::list_steps(run.folder).complete;
  const fs::path last_options = run.folder / "config.toml";
  const store::StepEntry* const entry = checkpoint_with_options(checkpoints, step, fs::exists(last_options));
  if (!checkpoints.empty() && entry != &checkpoints.front())
    run.first_step = (entry == nullptr ? checkpoints.back() : *(entry - 1)).step + 1;
  if (!checkpoints.empty()) {
    const fs::path& nearest = entry != nullptr ? entry->folder : checkpoints.back().folder;
    const store::Manifest manifest = store::read_manifest(nearest);
    run.tokenizer_folder = nearest / "tokenizer";
    run.sample_order = manifest.state.sample_order;
    if (!manifest.state.layout.empty()) run.layout = plan::parse_layout(manifest.state.layout).grid;
    if (entry != nullptr) {
      if (entry->step >= step.value_or(entry->step + 1)) run.last_step = entry->step;
      run.options_from = (nearest / store::kManifestName).string();
      run.config = read_saved_run(manifest, nearest.string(), more);
      return run;
    }
    read_last_options(last_options, *find_family(manifest.model.family), more, run.config);
  } else if (fs::exists(last_options)) {
    read_last_options(last_options, family_by_command(run.folder), more, run.config);
  } else {
    throw UserError(concat("'", run.folder.string(), "' has neither config.toml nor a checkpoint: what the run read ",
                           "is not known"),
                    ExitCode::kMissingInput);
  }
  run.options_from = last_options.string();
  if (const auto layout = layout_by_events(run.folder, step)) run.layout = layout;
  return run;
}

const RecordedStep* RecordedSteps::find(int64_t step) const {
  const auto found = std::lower_bound(records.begin(), records.end(), step,
                                      [](const RecordedStep& one, int64_t value) { return one.step < value; });
  return found == records.end() || found->step != step ? nullptr : &*found;
}

RecordedSteps read_recorded_steps(const RecordedRun& run) {
  std::vector<plan::StepRecord> steps;
  std::vector<RecordedStep> records;
  std::ifstream file(run.folder / "metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    plan::StepRecord step;
    RecordedStep record;
    const bool whole = report::for_each_member(line, [&](std::string_view key, std::string_view value) {
      if (key == "sample_hash") return void(record.sample_hash = report::text_of(value));
      if (key == "skipped") return void(record.skipped = value == "true");
      int64_t* const target = key == "step"                ? &step.step
                              : key == "consumed_samples"  ? &step.consumed_samples
                              : key == "global_batch_size" ? &step.num_samples
                                                           : nullptr;
      if (target != nullptr && std::isfinite(report::number_of(value)))
        *target = static_cast<int64_t>(report::number_of(value));
    });
    if (!whole || step.step < 1 || step.num_samples < 1 || step.consumed_samples < step.num_samples) continue;
    for (; !steps.empty() && steps.back().step >= step.step; steps.pop_back()) records.pop_back();  // gone back
    record.step = step.step;
    steps.push_back(step);
    records.push_back(std::move(record));
  }
  for (const store::StepEntry& entry : store::list_steps(run.folder).complete) {
    if (entry.step < 1 || (!steps.empty() && entry.step <= steps.back().step)) continue;
    steps.push_back({entry.step, store::read_manifest(entry.folder).state.consumed_train_samples, 0});
  }
  const auto& ramp = run.config.training.rampup_batch_size;
  const int64_t batch = *run.config.training.global_batch_size;
  return {plan::StepSamples(ramp.empty() ? plan::BatchRamp(batch) : plan::BatchRamp(ramp[0], ramp[1], ramp[2], batch),
                            run.config.training.num_steps, steps),
          std::move(records)};
}

}  // namespace espalier::families
