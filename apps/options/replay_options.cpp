#include "apps/options/replay_options.h"

#include <algorithm>
#include <thread>

#include "base/error.h"
#include "base/format.h"
#include "base/output_checks.h"
#include "store/manifest.h"

namespace espalier {
namespace {

constexpr int64_t kMostRanksUnasked = 16;

// What was loaded is gone with the options of the step, unless it is the run itself.
void check_beginning(const families::RecordedRun& run, int64_t step) {
  const config::CheckpointConfig& from = run.config.checkpoint;
  const bool began_elsewhere = (!from.load.empty() && from.load != from.save) || !from.pretrained.empty();
  if (began_elsewhere)
    throw UserError(concat("'", run.folder.string(), "' has no checkpoint before step ", step,
                           ", and the run did not start with fresh weights: it loaded '",
                           from.pretrained.empty() ? from.load : from.pretrained,
                           "'. A step after the first checkpoint can be repeated."),
                    ExitCode::kMissingInput);
}

void choose_layout(const ReplayOptions& options, ReplayPlan& plan) {
  if (!options.layout.empty()) {
    plan.layout = plan::parse_layout(options.layout);
    return;
  }
  if (!plan.run.layout)
    throw UserError(concat("'", plan.run.folder.string(), "' does not record in which layout step ", options.step,
                           " was made. Name one: --layout tp1, or that of the run."),
                    ExitCode::kUsage);
  plan.layout.grid = *plan.run.layout;
  plan.own_layout = true;
  const int64_t most = std::max<int64_t>(kMostRanksUnasked, std::thread::hardware_concurrency());
  if (plan.layout.grid.num_ranks() > most)
    throw UserError(
        concat("step ", options.step, " was made in layout ", spec::to_string(plan.layout.grid), ", by ",
               plan.layout.grid.num_ranks(), " processes; all of a replay run on this machine. --layout ",
               "names another (--layout tp1, one process), whose results differ in their last bits, or ", "this one."),
        ExitCode::kUsage);
}

// With --canonical-reduction the number of replicas and the stage of ZeRO change no bit.
bool has_same_bits(const ReplayPlan& plan) {
  if (plan.own_layout) return true;
  if (!plan.run.config.parallel.canonical_reduction || !plan.run.layout || plan.layout.num_chunks > 1 ||
      plan.layout.zero_bubble)
    return false;
  spec::GridShape run = *plan.run.layout;
  run.data = plan.layout.grid.data;
  return run == plan.layout.grid && plan.layout.sequence_parallel == plan.run.config.parallel.sequence_parallel;
}

// A retriever's queries compete with the blocks of one micro-batch of all replicas: with another number of these it has
// another loss, which says nothing about the run's.
void check_competitors(const ReplayOptions& options, const ReplayPlan& plan) {
  if (!plan.run.layout || !plan.run.config.family->competes_across_replicas) return;
  const int64_t replicas = plan.layout.grid.data, chosen = plan.run.config.training.micro_batch_size;
  const int64_t micro_batch =
      options.more.empty() ? chosen
                           : families::read_recorded_run(options.load, options.step).config.training.micro_batch_size;
  const int64_t competing = micro_batch * plan.run.layout->data;
  if (chosen * replicas == competing) return;
  const std::string remedy = competing % replicas == 0 ? concat("Give -- --micro-batch-size ", competing / replicas)
                                                       : concat("Choose a number of replicas that divides ", competing);
  throw UserError(concat("--layout ", options.layout, ": a query of ", plan.run.config.family->display,
                         " competes with the blocks of a micro-batch of all replicas, which were ", competing, " (",
                         micro_batch, " on each of ", plan.run.layout->data, ") and would be ", chosen * replicas, " (",
                         chosen, " on each of ", replicas, "): that is another loss. ", remedy, "."),
                  ExitCode::kUsage);
}

}  // namespace

bool read_replay_options(const std::vector<std::string>& arguments, ReplayOptions& options, Problems& problems) {
  OptionTable table("espalier replay",
                    "Repeats a step of a run from the checkpoint before it and says whether loss, gradient norm and "
                    "tensors are equal to the bit. Options of train after -- replace the run's: -- --data-path "
                    "WHERE-IT-IS-NOW.");
  table.add("--load", options.load, "run folder (--save of the run)").value_name("FOLDER").required();
  table.add("--step", options.step, "number of the step, from 1").minimum(1).required();
  table
      .add("--layout", options.layout,
           "as in tp2pp1dp2: a layout other than the run's, whose last bits then differ, but for those that "
           "--canonical-reduction makes equal")
      .default_text("the run's");
  table.add("--record", options.record, "write digests of what each operation computed in that step")
      .value_name("FILE");
  table.add("--overwrite", options.overwrite, "replace a file of --record that is not a recording");
  table.add("--compare", options.compare, "name the first tensor that differs from such a recording")
      .value_name("FILE");
  table.add("--num-threads", options.num_threads, "of each process; another number changes the last bits")
      .minimum(1)
      .default_text("the run's");
  table.add("--json", options.json, "one JSON object");
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  if (dashes != arguments.end()) options.more.assign(dashes + 1, arguments.end());
  if (!table.parse({arguments.begin(), dashes}, problems)) return false;
  if (!options.record.empty() && !options.overwrite)
    if (const std::string why = describe_other_file(options.record, R"({"espalier_recording":)", "a recording");
        !why.empty())
      problems.add("--record: ", why, " Or --overwrite replaces it");
  return true;
}

ReplayPlan plan_replay(const ReplayOptions& options) {
  ReplayPlan plan{.run = families::read_recorded_run(options.load, options.step, options.more), .layout = {}};
  const int64_t num_steps = plan.run.config.training.num_steps;
  if (options.step > num_steps)
    throw UserError(
        concat("--step ", options.step, ": the run in '", plan.run.folder.string(), "' has ", num_steps, " steps"),
        ExitCode::kUsage);
  for (const store::StepEntry& entry : store::list_steps(plan.run.folder).complete) {
    if (entry.step < options.step) plan.from = entry;
    if (entry.step == options.step) plan.after = entry;
  }
  if (!plan.from) check_beginning(plan.run, options.step);
  choose_layout(options, plan);
  plan.is_exact = has_same_bits(plan);
  check_competitors(options, plan);
  if (const auto& told = plan.after ? plan.after : plan.from) {
    const store::TrainingState state = store::read_manifest(told->folder).state;
    plan.shared_memory = state.transport != "Gloo";
    if (plan.is_exact && state.num_threads > 0) plan.num_threads = state.num_threads;
  }
  if (options.num_threads) plan.num_threads = options.num_threads;
  return plan;
}

}  // namespace espalier
