#include "apps/plan/request.h"

#include <algorithm>

#include "apps/tokenizer/run_tokenizer.h"
#include "base/format.h"
#include "config/deepspeed_config.h"
#include "plan/faults/fault_model.h"

namespace espalier {
namespace {

void find_vocabulary(config::RunConfig& config, Problems& problems) {
  const config::TokenizerConfig& tokenizer = config.tokenizer;
  try {
    if (tokenizer.pad_vocab_size_to) return config::set_vocabulary(config, *tokenizer.pad_vocab_size_to);
    if (const auto loaded = load_run_tokenizer(tokenizer)) return config::set_vocabulary(config, loaded->vocab_size());
    problems.add("the size of the vocabulary is not known: give --pad-vocab-size-to, or the tokenizer's files");
  } catch (const UserError& error) {
    problems.add(error.what());
  }
}

std::vector<std::string> fault_names() {
  std::vector<std::string> names;
  for (const plan::FaultRate& rate : plan::fault_rates()) names.emplace_back(rate.name);
  return names;
}

void add_machine_options(OptionTable& table, PlanRequest& request) {
  table
      .add("--machine", request.machine_name,
           concat("predict time, energy and price on this machine: ", join(plan::machine_names(), ", "),
                  ", or a TOML file such as those of recipes/machines"))
      .value_name("NAME")
      .not_in_recipe()
      .common();
  table.add("--nodes", request.nodes, "nodes of the machine, whose devices the run all uses; instead of --gpus")
      .minimum(1)
      .maximum(1e6)
      .not_in_recipe()
      .common();
  table.add("--tokens", request.tokens, "tokens to train on, for duration and price")
      .minimum(1)
      .default_text("all of the run")
      .not_in_recipe()
      .common();
  table.add("--gpu-hour-price", request.gpu_hour_price, "price of a device per hour, in the machine's currency")
      .minimum(0)
      .not_in_recipe();
  table
      .add("--search", request.search,
           "find the fastest layout, micro-batch, schedule and recompute on --nodes or --gpus of --machine")
      .not_in_recipe()
      .common();
  table
      .add("--faults", request.faults,
           concat("cost of failures: a published rate (", join(fault_names(), ", "), ") or failures per node and day"))
      .value_name("RATE")
      .not_in_recipe()
      .common();
  const plan::FaultModel faults;
  const auto add_fault = [&](const char* name, std::optional<double>& value, const std::string& help, double usual) {
    table.add(name, value, help).minimum(0).default_text(format_shortest(usual)).not_in_recipe();
  };
  add_fault("--detect-seconds", request.detect_seconds, "with --faults: from a failure until it is detected",
            faults.detect);
  add_fault("--restart-seconds", request.restart_seconds, "with --faults: from then until training resumes",
            faults.restart);
  add_fault("--save-seconds", request.save_seconds, "with --faults: time that training waits for each save",
            faults.save);
  table.add("--fault-days", request.fault_days, "with --faults: length of the simulated runs")
      .minimum(0.01)
      .maximum(1e5)
      .default_text("the run's")
      .not_in_recipe();
  table.add("--timetable", request.timetable, "sizes of a growing batch with their steps, days and tokens")
      .not_in_recipe();
  table.add("--node-changes", request.node_changes, "what one node more or less changes, and one copy of the model")
      .not_in_recipe();
  table.add("--sources", request.sources, "where the numbers of the machine come from").not_in_recipe();
}

// Finds the machine, and says how many processes its nodes hold.
void resolve_machine(const OptionTable& table, PlanRequest& request, Problems& problems) {
  if (request.machine_name.empty()) {
    const std::vector<std::pair<const char*, bool>> given = {{"--nodes", request.nodes.has_value()},
                                                             {"--tokens", request.tokens.has_value()},
                                                             {"--gpu-hour-price", request.gpu_hour_price.has_value()},
                                                             {"--sources", request.sources},
                                                             {"--search", request.search},
                                                             {"--timetable", request.timetable},
                                                             {"--node-changes", request.node_changes},
                                                             {"--faults", !request.faults.empty()}};
    for (const auto& [name, is_given] : given)
      if (is_given) problems.add(table.origin(name), " needs --machine, which says what a node is");
    return;
  }
  try {
    request.machine = plan::find_machine(request.machine_name);
  } catch (const UserError& error) {
    problems.add(error.what());
    return;
  }
  if (request.gpu_memory.empty()) request.memory_limit = static_cast<int64_t>(request.machine->memory_bytes);
  if (request.gpu_hour_price) request.machine->device_hour_price = *request.gpu_hour_price;
  if (!request.faults.empty()) {
    try {
      plan::find_fault_rate(request.faults);
    } catch (const UserError& error) {
      problems.add(error.what());
    }
  }
  if (request.search && !request.nodes && !request.gpus)
    problems.add(table.origin("--search"), " needs --nodes or --gpus: how many devices are there?");
  if (!request.nodes) return;
  const int64_t devices = *request.nodes * static_cast<int64_t>(request.machine->devices_per_node);
  if (request.gpus && *request.gpus != devices)
    problems.add(table.origin("--gpus"), " and ", table.origin("--nodes"), " of ",
                 static_cast<int64_t>(request.machine->devices_per_node), " devices, ", devices,
                 ", do not agree; give one of them");
  request.gpus = devices;
}

// The run with other flags after its own, if that is a legal one.
std::optional<plan::RunPlan> try_flags(const config::Family& family, const std::vector<std::string>& arguments,
                                       const std::string& flags) {
  PlanRequest request;
  Problems problems;
  try {
    if (!read_trial(family, arguments, flags, request, problems) || !problems.empty()) return std::nullopt;
    return plan::plan_run(config::run_shape(request.config));
  } catch (const UserError&) {
    return std::nullopt;
  }
}

// "" and what else might help, for one option.
std::vector<std::string> recompute_choices(const config::RunConfig& config) {
  if (config.training.recompute.kind != plan::Recompute::Kind::kNone) return {""};
  return {"", "--checkpoint-activations"};
}
std::vector<std::string> zero_choices(const config::RunConfig& config) {
  if (config.parallel.zero_stage > 0 || config.grid.data == 1) return {""};
  return {"", "--zero-stage 1"};
}
std::vector<std::string> batch_choices(const config::RunConfig& config) {
  if (config.training.micro_batch_size == 1) return {""};
  return {"", "--micro-batch-size 1"};
}
std::vector<std::string> size_choices(const std::string& option, int64_t size) {
  std::vector<std::string> choices = {""};
  for (const int64_t factor : {2, 4, 8, 16}) choices.push_back(concat(option, " ", size * factor));
  return choices;
}

}  // namespace

bool read_plan_request(const config::Family& family, const std::vector<std::string>& arguments, PlanRequest& request,
                       Problems& problems, bool is_trial) {
  OptionTable table(concat("espalier plan ", family.name),
                    concat("Shows what a training run needs from every process, without starting one. Takes the "
                           "options of `espalier train ",
                           family.name, "`; neither data nor a tokenizer is needed."));
  config::add_options(family, table, request.config);
  table.group("plan");
  table.add("--gpus", request.gpus, "processes of the run")
      .minimum(1)
      .maximum(1e7)
      .default_text("one copy of the model")
      .not_in_recipe()
      .common();
  table
      .add("--gpu-memory", request.gpu_memory,
           "memory of one process, such as 80GiB: does the run fit? (that of --machine by default)")
      .alias("--gpu-mem")
      .value_name("BYTES")
      .not_in_recipe()
      .common();
  table.add("--rank", request.rank, "what this process holds, parameter by parameter, instead of the tables of stages")
      .minimum(0)
      .not_in_recipe();
  table.add("--json", request.json, "one JSON object on stdout instead of tables").not_in_recipe().common();
  table.add("--svg", request.svg, "also write a picture of schedule and memory, or of what --search found")
      .value_name("FILE")
      .not_in_recipe()
      .common();
  add_machine_options(table, request);
  table.say_notes(!is_trial);
  if (!table.parse(arguments, problems)) return false;
  resolve_machine(table, request, problems);
  if (!request.search || is_trial) request.config.num_ranks = request.gpus;
  request.config.plan_only = true;
  config::read_deepspeed_config(request.config, table, problems);
  config::resolve(request.config, table, problems);
  if (!request.gpu_memory.empty()) {
    request.memory_limit = parse_bytes(request.gpu_memory);
    if (!request.memory_limit)
      problems.add(table.origin("--gpu-memory"),
                   " is not an amount of memory; use bytes, or a unit: 80GiB, 512MiB, 80GB");
    else if (*request.memory_limit < int64_t{1} << 20)
      problems.add(table.origin("--gpu-memory"), " is less than any device has; use an amount such as 80GiB");
  }
  find_vocabulary(request.config, problems);
  return true;
}

bool read_trial(const config::Family& family, std::vector<std::string> arguments, const std::string& flags,
                PlanRequest& request, Problems& problems) {
  for (const std::string& word : split_blanks(flags)) arguments.push_back(word);
  return read_plan_request(family, arguments, request, problems, /*is_trial=*/true);
}

std::vector<FittingChoice> fitting_choices(const std::vector<std::string>& arguments, const config::RunConfig& config,
                                           int64_t memory_limit, size_t most) {
  struct Candidate {
    int64_t cost;
    std::string flags;
  };
  std::vector<Candidate> candidates;
  const auto tensors = size_choices("--tensor-model-parallel-size", config.grid.tensor);
  const auto pipelines = size_choices("--pipeline-model-parallel-size", config.grid.pipeline);
  for (const std::string& recompute : recompute_choices(config))
    for (const std::string& zero : zero_choices(config))
      for (const std::string& batch : batch_choices(config))
        for (size_t tensor = 0; tensor < tensors.size(); ++tensor)
          for (size_t pipeline = 0; pipeline < pipelines.size(); ++pipeline) {
            const int64_t cost = static_cast<int64_t>(2 * !recompute.empty() + !zero.empty() + !batch.empty() +
                                                      3 * tensor + 3 * pipeline);
            const Candidate candidate{
                cost,
                join(split_blanks(join({zero, batch, recompute, tensors[tensor], pipelines[pipeline]}, " ")), " ")};
            if (!candidate.flags.empty()) candidates.push_back(candidate);
          }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.cost < b.cost; });
  std::vector<FittingChoice> choices;
  for (const Candidate& candidate : candidates) {
    if (choices.size() == most) break;
    const auto tried = try_flags(*config.family, arguments, candidate.flags);
    if (!tried) continue;
    const double peak = tried->memory.largest().peak();
    if (peak <= static_cast<double>(memory_limit))
      choices.push_back({candidate.flags, peak, tried->simulation.bubble_share});
  }
  return choices;
}

}  // namespace espalier
