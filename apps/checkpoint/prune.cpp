#include "apps/checkpoint/prune.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/print_json.h"
#include "base/format.h"
#include "base/log.h"
#include "base/options.h"
#include "base/thread_pool.h"
#include "report/run_reader.h"
#include "store/prune.h"
#include "store/run_folder.h"
#include "store/step_reader.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Words = std::vector<std::string>;
using store::StepEntry;

struct PruneRequest {
  Words folders;
  store::PruneRule rule;
  int64_t workers = num_usable_cores();
  std::string verify = "all";
  bool keep_spikes = false, keep_epochs = false, yes = false, json = false;
};

// Old checkpoints go only when what stays has been read to its last byte.
void verify_kept(const std::vector<StepEntry>& kept, int64_t workers) {
  Problems problems;
  for (const StepEntry& entry : kept)
    for (const std::string& problem :
         store::verify_step(entry.folder, static_cast<int>(workers), /*weights_only=*/false))
      problems.add(problem);
  if (problems.empty()) return;
  problems.add(
      "Nothing was removed: these are among the checkpoints that would stay. Move what is damaged out of the "
      "run folder, then prune again.");
  problems.raise(ExitCode::kBadData);
}

std::string size_of(const StepEntry& entry) {
  return format_bytes(static_cast<double>(store::folder_bytes(entry.folder)));
}

void print_rows(const char* action, const std::vector<StepEntry>& entries) {
  for (const StepEntry& entry : entries)
    std::printf("%-6s  %-28s  %10s\n", action, entry.folder.filename().c_str(), size_of(entry).c_str());
}

Json rows_of(const std::vector<StepEntry>& entries) {
  Json rows = Json::array();
  for (const StepEntry& entry : entries)
    rows.push_back(
        {{"step", entry.step}, {"folder", entry.folder.string()}, {"bytes", store::folder_bytes(entry.folder)}});
  return rows;
}

void print_plan(const PruneRequest& request, const store::PrunePlan& plan) {
  if (!request.json) {
    print_rows("keep", plan.keep);
    print_rows("remove", plan.remove);
    return;
  }
  const Json object = {{"run", request.folders[0]},
                       {"keep", rows_of(plan.keep)},
                       {"remove", rows_of(plan.remove)},
                       {"removed", request.yes}};
  print_json(object);
}

std::vector<int64_t> steps_of_events(const fs::path& run, const std::string& name) {
  std::vector<int64_t> steps;
  for (const report::RunEvent& event : report::read_run(run).events)
    if (event.event == name) steps.push_back(event.step);
  return steps;
}

std::vector<int64_t> ends_of_epochs(const fs::path& run) {
  const std::vector<int64_t> steps = steps_of_events(run, "epoch");
  const auto options = report::read_run(run).options;
  const auto found = options.find("save_keep_epochs");
  if (steps.empty() && (found == options.end() || found->second != "true"))
    throw UserError(concat("--keep-epochs: '", run.string(),
                           "' has not recorded where passes over its data end: it was trained without "
                           "--save-keep-epochs. Give --keep-every N"));
  return steps;
}

void prune(const PruneRequest& request) {
  const fs::path run = request.folders[0];
  const store::RunListing listing = store::list_steps(run);
  store::PruneRule rule = request.rule;
  if (request.keep_spikes) rule.spikes = steps_of_events(run, "spike");
  if (request.keep_epochs) rule.epochs = ends_of_epochs(run);
  store::PrunePlan plan = store::plan_prune(listing, rule);
  if (plan.keep.empty()) {
    const std::string other = report::describe_no_run(run);
    throw UserError(concat(other.empty() ? concat("'", run.string(), "' holds no complete checkpoint") : other,
                           "; nothing is removed"),
                    ExitCode::kMissingInput);
  }
  std::optional<store::RunLock> lock;  // unfinished folders may be somebody's who is writing them
  if (!plan.leftovers.empty()) lock = store::RunLock::take_if_free(run);
  if (!lock && !plan.leftovers.empty()) {
    log_info("the run is in use: unfinished and set-aside folders stay");
    plan.leftovers.clear();
  }
  plan.remove.insert(plan.remove.end(), plan.leftovers.begin(), plan.leftovers.end());
  if (request.yes && !plan.remove.empty())
    verify_kept(request.verify == "all" ? plan.keep : std::vector<StepEntry>{plan.keep.back()}, request.workers);
  print_plan(request, plan);
  if (!request.yes && !plan.remove.empty())
    log_info("nothing was removed; add --yes to do it (first ",
             request.verify == "all" ? "everything that stays" : "the newest checkpoint", " is read and verified)");
  if (request.yes)
    for (const StepEntry& entry : plan.remove) store::remove_step_folder(entry);
}

}  // namespace

int prune_checkpoints_main(const Words& arguments) {
  PruneRequest request;
  OptionTable table("espalier checkpoint prune",
                    "Removes old checkpoints of a run. The newest complete one always stays. Without --yes it only "
                    "shows what would be removed. With --yes it first reads everything that stays and compares the "
                    "checksums; if anything is damaged it names it and removes nothing (exit code 65).");
  table.positional("RUN_FOLDER", request.folders, "folder of a run (--save)", 1, 1);
  table.add("--keep-last", request.rule.keep_last, "keep the newest N").minimum(0);
  table.add("--keep-every", request.rule.keep_every, "keep steps divisible by N").minimum(0);
  table
      .add("--up-to", request.rule.up_to,
           "newer checkpoints stay as they are, and the others are judged as if these did not exist")
      .value_name("STEP")
      .minimum(1);
  table.add("--keep", request.rule.keep, "keep these steps, too").value_name("STEP").minimum(1);
  table
      .add("--verify", request.verify,
           "what is read before anything is removed: all that stays, or the newest checkpoint")
      .choices({"all", "newest"});
  table.add(
      "--keep-spikes", request.keep_spikes,
      "keep those before and after each spike of the run's events: the newest before it, the first at or after it");
  table.add(
      "--keep-epochs", request.keep_epochs,
      "keep the first at or after the end of each pass over the data, as runs with --save-keep-epochs record them");
  table.add("--yes", request.yes, "really remove");
  table.known_elsewhere({"--dry-run"}, "nothing is removed without --yes");
  table.known_elsewhere({"--keep-newest", "--keep-latest", "--save-total-limit"}, "--keep-last");
  table.add("--workers", request.workers, "threads that verify").minimum(1).maximum(1024);
  table.add("--json", request.json, "one JSON object: run, keep and remove (step, folder, bytes each), removed");
  Problems problems;
  if (!table.parse(arguments, problems)) return 0;
  if (request.rule.keep_last == 0 && request.rule.keep_every == 0 && !request.keep_spikes && !request.keep_epochs &&
      problems.empty())
    problems.add("say what to keep: --keep-last N, --keep-every N, --keep-spikes, --keep-epochs, or several of them");
  problems.raise();
  prune(request);
  return 0;
}

}  // namespace espalier
