#include "apps/train/memory_check.h"

#include <algorithm>
#include <optional>

#include "base/cpu_isa.h"
#include "base/format.h"
#include "config/deepspeed_config.h"
#include "config/run_options.h"
#include "launch/machine_memory.h"
#include "plan/memory.h"
#include "plan/partition.h"

namespace espalier {
namespace {

using Words = std::vector<std::string>;

constexpr size_t kMostSuggestions = 4;

struct Part {
  const char* name;
  double bytes;
};

// Of the processes of one machine together; where machines differ, of the one that needs most.
struct Need {
  std::vector<Part> parts;
  double total = 0, largest_process = 0;
};

Need need_of_ranks(const config::RunConfig& config, const plan::RunShape& run, const plan::MemoryPlan& memory,
                   int64_t begin, int64_t ranks_of_machine) {
  const int64_t end = std::min(begin + ranks_of_machine, config.grid.num_ranks());
  Need need;
  plan::StageMemory sum;
  double kept = 0;
  for (int64_t rank = begin; rank < end; ++rank) {
    const auto stage = static_cast<size_t>(spec::position_of(config.grid, rank).pipeline);
    const plan::StageMemory& one = memory.stages[stage];
    sum.weights += one.weights, sum.gradients += one.gradients, sum.optimizer += one.optimizer;
    sum.activations += one.activations, sum.workspace += one.workspace;
    sum.gathered += one.gathered, sum.batches += one.batches;
    kept += copies_in_memory(config, one, rank, ranks_of_machine);
    need.largest_process = std::max(need.largest_process, one.peak());
  }
  // Ranks divide a checkpoint about equally.
  const double copies = config.checkpoint.save.empty()
                            ? 0
                            : plan::checkpoint_bytes(run) * static_cast<double>(end - begin) /
                                  static_cast<double>(config.grid.num_ranks());
  need.parts = {{"weights", sum.weights},     {"gradients", sum.gradients},
                {"optimizer", sum.optimizer}, {"activations", sum.activations},
                {"workspace", sum.workspace}, {"gathered layers", sum.gathered},
                {"batches", sum.batches},     {"the copy that is being saved", copies},
                {"copies of the state", kept}};
  for (const Part& part : need.parts) need.total += part.bytes;
  std::stable_sort(need.parts.begin(), need.parts.end(),
                   [](const Part& a, const Part& b) { return a.bytes > b.bytes; });
  return need;
}

Need need_of_machine(const config::RunConfig& config, int64_t ranks_of_machine) {
  const plan::RunShape run = config::run_shape(config);
  const plan::MemoryPlan memory =
      plan::plan_memory(run, plan::make_partition(run), plan::products_of(cpu_isa(), run.precision));
  Need most;
  for (int64_t begin = 0; begin < config.grid.num_ranks(); begin += ranks_of_machine)
    if (Need need = need_of_ranks(config, run, memory, begin, ranks_of_machine); need.total > most.total)
      most = std::move(need);
  return most;
}

// With other flags after its own, if that is a legal run.
std::optional<Need> need_with(Words arguments, const std::string& flags, const config::RunConfig& run,
                              int64_t ranks_of_machine) {
  for (const std::string& word : split_blanks(flags)) arguments.push_back(word);
  config::RunOptions options(*run.family);
  config::RunConfig& config = options.config;
  OptionTable& table = options.table;
  config.num_ranks = run.num_ranks;
  config.stays_on_one_machine = run.stays_on_one_machine;
  Problems problems;
  try {
    if (!table.parse(arguments, problems)) return std::nullopt;
    config::read_deepspeed_config(config, table, problems);
    config::choose_zero_stage(config, table, problems);
    config::resolve(config, table, problems);
    if (!problems.empty()) return std::nullopt;
    config::set_vocabulary(config, run.vocabulary.size);
    return need_of_machine(config, ranks_of_machine);
  } catch (const UserError&) {
    return std::nullopt;
  }
}

// Those that change least first.
Words candidates(const config::RunConfig& config) {
  Words batches = {""}, recomputes = {""}, stages = {""};
  for (int64_t size = config.training.micro_batch_size / 2; size >= 1; size /= 2)
    if (config.training.micro_batch_size % size == 0) batches.push_back(concat("--micro-batch-size ", size));
  if (config.training.recompute.kind == plan::Recompute::Kind::kNone)
    recomputes.push_back("--recompute-granularity full");
  for (int64_t stage = config.parallel.zero_stage + 1; stage <= 3 && config.grid.data * config.grid.context > 1;
       ++stage)
    stages.push_back(concat("--zero-stage ", stage));
  Words list;
  for (const std::string& stage : stages)
    for (const std::string& recompute : recomputes)
      for (const std::string& batch : batches)
        list.push_back(join(split_blanks(join({batch, recompute, stage}, " ")), " "));
  return list;
}

// Whether ranks on other machines hold the same state as this one: they have copies of it without being sent any.
// Replicas are numbered upwards, and so are machines.
bool has_replica_elsewhere(const config::RunConfig& config, int64_t rank, int64_t ranks_of_machine) {
  if (config.parallel.zero_stage > 0) return false;
  spec::GridPosition position = spec::position_of(config.grid, rank);
  const auto is_elsewhere = [&] {
    return spec::rank_of(config.grid, position) / ranks_of_machine != rank / ranks_of_machine;
  };
  position.context = 0, position.data = 0;
  if (is_elsewhere()) return true;
  position.context = config.grid.context - 1, position.data = config.grid.data - 1;
  return is_elsewhere();
}

}  // namespace

double copies_in_memory(const config::RunConfig& config, const plan::StageMemory& memory, int64_t rank,
                        int64_t ranks_of_machine) {
  if (!config.checkpoint.non_persistent_save_interval || config.data.eval_only) return 0;
  const int64_t stage = config.parallel.zero_stage;
  const bool divides_weights = stage == 1 || stage == 2;  // those of stage 3 are counted as divided
  const auto sharers = static_cast<double>(config.grid.data * config.grid.context);
  const bool comes_twice = config.checkpoint.replication && ranks_of_machine < config.grid.num_ranks() &&
                           !has_replica_elsewhere(config, rank, ranks_of_machine);
  return (comes_twice ? 4 : 2) * (memory.weights / (divides_weights ? sharers : 1) + memory.optimizer);
}

std::string lack_of_memory(const Words& arguments, const config::RunConfig& config,
                           const launch::RankEnvironment& place) {
  if (config::may_go_to_gpu(config) || config.vocabulary.size == 0) return "";
  const int64_t here = std::min(place.local_world_size, config.grid.num_ranks());
  const Need need = need_of_machine(config, here);
  const launch::MachineMemory machine = launch::machine_memory();
  const auto available = static_cast<double>(machine.available_bytes);
  if (need.total <= available) return "";
  std::string text = concat(
      "this run needs ", format_bytes(need.total), " of memory on one machine (",
      here == 1 ? "one process" : concat(here, " processes, ", format_bytes(need.largest_process), " for the largest"),
      "), and this machine has ", format_bytes(available), " to give (", machine.source, "):");
  for (const Part& part : need.parts)
    if (part.bytes >= 0.02 * need.total) text += concat("\n    ", part.name, " ", format_bytes(part.bytes));
  size_t num_choices = 0;
  for (const std::string& flags : candidates(config)) {
    if (flags.empty() || num_choices == kMostSuggestions) continue;
    const auto tried = need_with(arguments, flags, config, here);
    if (!tried || tried->total > available) continue;
    text += concat(num_choices++ == 0 ? "\n  What fits, after the same flags:" : "", "\n    ", flags, "   (",
                   format_bytes(tried->total), ")");
  }
  if (num_choices == 0)
    text +=
        "\n  Neither smaller micro-batches nor recompute nor ZeRO makes it fit: use more machines (`espalier plan` "
        "says how many), or a smaller model.";
  return text + "\n  --allow-memory-overcommit starts it anyway.";
}

}  // namespace espalier
