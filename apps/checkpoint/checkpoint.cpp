// espalier checkpoint: looks at checkpoints, proves them whole, compares and removes them.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "apps/checkpoint/average.h"
#include "apps/checkpoint/backup.h"
#include "apps/checkpoint/hf.h"
#include "apps/checkpoint/inspect.h"
#include "apps/checkpoint/megatron.h"
#include "apps/checkpoint/prune.h"
#include "apps/commands.h"
#include "apps/print_json.h"
#include "base/format.h"
#include "base/log.h"
#include "base/options.h"
#include "base/thread_pool.h"
#include "store/diff.h"
#include "store/gentle_verify.h"
#include "store/run_folder.h"
#include "store/step_reader.h"
#include "watch/verified.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Words = std::vector<std::string>;
using store::StepEntry;

// A run folder (its newest complete step, or the one asked for) or a step folder.
StepEntry step_of(const std::string& folder, std::optional<int64_t> step) {
  return *store::find_checkpoint(folder, step, /*save=*/"");
}

int checkpoint_inspect_main(const Words& arguments) {
  Words folders;
  std::optional<int64_t> step;
  bool json = false, config = false;
  OptionTable table("espalier checkpoint inspect", "Shows what a checkpoint holds: state, sizes, tensors.");
  table.positional("FOLDER", folders, "run folder (newest complete step) or step folder", 1, 1);
  table.add("--ckpt-step", step, "this step of a run folder");
  table.known_elsewhere({"--step", "--iteration"}, "--ckpt-step");
  table.add("--config", config, "print the configuration it was saved with (TOML) and nothing else");
  table.add("--json", json, "one JSON object: the manifest and the folder");
  if (!table.parse(arguments)) return 0;
  const StepEntry entry = step_of(folders[0], step);
  const store::Manifest manifest = store::read_manifest(entry.folder);
  if (config) {
    std::fputs(manifest.config.c_str(), stdout);
  } else if (json) {
    Json object = Json::parse(store::to_json(manifest));
    object["folder"] = entry.folder.string();
    print_json(object);
  } else {
    std::fputs(describe_checkpoint(entry.folder, manifest, store::list_steps(folders[0])).c_str(), stdout);
  }
  return 0;
}

int verify_main(const Words& arguments) {
  Words folders;
  std::optional<int64_t> step;
  int64_t workers = num_usable_cores();
  bool all = false, oldest = false, weights_only = false, json = false;
  std::string rate;
  OptionTable table("espalier checkpoint verify",
                    "Reads every byte and compares it with its checksum. Exit code 1 and one line "
                    "for each tensor or file that is damaged or missing.");
  table.positional("FOLDER", folders, "run folder (newest complete step) or step folder", 1, 1);
  table.add("--ckpt-step", step, "this step of a run folder");
  table.known_elsewhere({"--step", "--iteration"}, "--ckpt-step");
  table.add("--all", all, "every complete step of a run folder");
  table.add(
      "--oldest", oldest,
      "of a run folder the step that was read longest ago, which is noted in RUN/watch/verified.json; exit code 65 "
      "if it is damaged");
  table.add("--rate", rate, "read at most this much a second, by one thread and past the page cache: 100MiB");
  table.add("--weights-only", weights_only, "optimizer files may be absent and are not read");
  table.add("--workers", workers, "threads that read").minimum(1).maximum(1024);
  table.add("--json", json, "one JSON object per checkpoint: folder, ok, problems");
  Problems problems_of_options;
  if (!table.parse(arguments, problems_of_options)) return 0;
  const auto bytes_per_second = rate.empty() ? std::optional<int64_t>(0) : parse_bytes(rate);
  if (!bytes_per_second || (!rate.empty() && *bytes_per_second == 0))
    problems_of_options.add("--rate: expected an amount such as 100MiB, found '", rate, "'");
  if (!rate.empty() && weights_only) problems_of_options.add("--rate reads all of a step: leave out --weights-only");
  if (oldest && (all || step || weights_only))
    problems_of_options.add("--oldest reads one step as a whole: leave out --all, --ckpt-step and --weights-only");
  problems_of_options.raise();

  std::vector<StepEntry> entries;
  if (all) entries = store::list_steps(folders[0]).complete;
  if (oldest)
    if (const auto next = watch::next_to_verify(folders[0])) entries.push_back(next->entry);
  if (entries.empty()) entries.push_back(step_of(folders[0], step));
  bool whole = true;
  for (const StepEntry& entry : entries) {
    const double begin = watch::wall_clock();
    const Words problems = *bytes_per_second > 0
                               ? store::verify_step_gently(entry.folder, static_cast<double>(*bytes_per_second))
                               : store::verify_step(entry.folder, static_cast<int>(workers), weights_only);
    if (oldest && !watch::note_verified(folders[0], entry, begin, problems)) {
      log_info(entry.folder.filename().string(), " was removed or replaced while it was read");
      return 0;
    }
    whole = whole && problems.empty();
    if (json) {
      print_json(Json{{"folder", entry.folder.string()}, {"ok", problems.empty()}, {"problems", problems}});
      continue;
    }
    std::printf("%s: %s\n", entry.folder.c_str(),
                problems.empty() ? "whole" : concat(problems.size(), " damaged").c_str());
    for (const std::string& problem : problems) std::printf("  %s\n", problem.c_str());
  }
  if (oldest && !whole) return static_cast<int>(ExitCode::kBadData);
  return whole ? 0 : 1;
}

const char* name_of(store::TensorDifference::Kind kind) {
  switch (kind) {
    case store::TensorDifference::Kind::kValues: return "values";
    case store::TensorDifference::Kind::kShapeOrType: return "shape_or_type";
    case store::TensorDifference::Kind::kOnlyInFirst: return "only_in_first";
    case store::TensorDifference::Kind::kOnlyInSecond: return "only_in_second";
  }
  return "";
}

std::string line_of(const store::TensorDifference& difference) {
  switch (difference.kind) {
    case store::TensorDifference::Kind::kValues:
      return concat(difference.name, " ", difference.first, ": ", format_count(difference.num_different),
                    " elements differ, largest difference ", format_printf("%.6g", difference.largest_difference));
    case store::TensorDifference::Kind::kShapeOrType:
      return concat(difference.name, ": ", difference.first, " | ", difference.second);
    case store::TensorDifference::Kind::kOnlyInFirst:
      return difference.name + " " + difference.first + ": only in the first";
    case store::TensorDifference::Kind::kOnlyInSecond: break;
  }
  return difference.name + " " + difference.second + ": only in the second";
}

Json to_json(const store::CheckpointDifference& difference) {
  Json tensors = Json::array();
  for (const store::TensorDifference& tensor : difference.tensors) {
    Json row = {
        {"name", tensor.name}, {"kind", name_of(tensor.kind)}, {"first", tensor.first}, {"second", tensor.second}};
    if (tensor.kind == store::TensorDifference::Kind::kValues) {
      row["num_different"] = tensor.num_different;
      row["largest_difference"] = tensor.largest_difference;  // null: one of a pair is NaN
    }
    tensors.push_back(row);
  }
  return {{"equal", difference.tensors.empty()},
          {"num_compared", difference.num_compared},
          {"tensors", tensors},
          {"state", difference.state}};
}

int diff_main(const Words& arguments) {
  Words folders;
  std::optional<int64_t> step;
  bool json = false;
  OptionTable table("espalier checkpoint diff",
                    "Compares two checkpoints. Exit code 0 only when every tensor of both is "
                    "bitwise equal; the state is reported and does not count.");
  table.positional("FOLDER", folders, "two run folders (newest complete steps) or step folders", 2, 2);
  table.add("--ckpt-step", step, "this step of both run folders");
  table.known_elsewhere({"--step", "--iteration"}, "--ckpt-step");
  table.add("--json", json, "one JSON object");
  if (!table.parse(arguments)) return 0;
  const StepEntry first = step_of(folders[0], step), second = step_of(folders[1], step);
  const store::CheckpointDifference difference = store::diff_steps(first.folder, second.folder);
  if (json) {
    print_json(to_json(difference));
  } else {
    for (const store::TensorDifference& tensor : difference.tensors) std::printf("%s\n", line_of(tensor).c_str());
    for (const std::string& field : difference.state) std::printf("state %s\n", field.c_str());
    std::printf("%s\n", difference.tensors.empty()
                            ? concat("all ", difference.num_compared, " tensors are bitwise equal").c_str()
                            : concat(difference.tensors.size(), " tensors are not equal, ", difference.num_compared,
                                     " compared")
                                  .c_str());
  }
  return difference.tensors.empty() ? 0 : 1;
}

}  // namespace

const std::vector<Command>& checkpoint_commands() {
  static const std::vector<Command> list = {
      {"inspect", "state, sizes and tensors of a checkpoint", checkpoint_inspect_main},
      {"verify", "read everything and compare the checksums", verify_main},
      {"diff", "compare two checkpoints to the bit", diff_main},
      {"average", "the mean of the weights of several checkpoints", average_checkpoints_main},
      {"backup", "copy checkpoints to another file system or store, and verify the copies", backup_checkpoints_main},
      {"prune", "remove old checkpoints of a run", prune_checkpoints_main},
      {"import-hf", "a Hugging Face folder as a run to generate with or finetune", import_hf_main},
      {"export-hf", "a checkpoint as a Hugging Face folder", export_hf_main},
      {"import-megatron", "make one from a Megatron or DeepSpeed checkpoint", import_megatron_main},
      {"export-megatron", "write one as a Megatron or DeepSpeed checkpoint", export_megatron_main},
  };
  return list;
}

int checkpoint_main(const std::vector<std::string>& arguments) {
  return run_subcommand("espalier checkpoint", checkpoint_commands(), arguments);
}

}  // namespace espalier
