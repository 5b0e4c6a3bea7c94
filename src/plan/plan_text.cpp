// What `espalier plan` prints.
#include <algorithm>

#include "base/format.h"
#include "plan/flops.h"
#include "plan/run_plan.h"
#include "spec/optimizer.h"

namespace espalier::plan {
namespace {

using Row = std::vector<std::string>;

std::string percent(double share) { return format_fixed(100 * share, 1) + " %"; }

// Consecutive layers of one stack of a model, numbered within it.
struct LayerRun {
  std::string stack;
  int64_t begin = 0, end = 0;
};

std::vector<LayerRun> layer_runs(const spec::ModelSpec& model, const DepthRange& layers) {
  std::vector<LayerRun> runs;
  int64_t number = 0;
  for (int64_t layer = 0; layer < layers.end; ++layer, ++number) {
    const auto stack = [&](int64_t of) -> const std::string& {
      return model.depths[static_cast<size_t>(of + 1)].stack;
    };
    if (layer > 0 && stack(layer) != stack(layer - 1)) number = 0;
    if (layer < layers.begin) continue;
    if (layer == layers.begin || number == 0)
      runs.push_back({stack(layer), number, number + 1});
    else
      runs.back().end = number + 1;
  }
  return runs;
}

// "embedding, layers 0-4, 10-14"; "encoder layer 5, decoder layers 0-5, output".
std::string holds(const RunPlan& plan, int64_t stage) {
  const Partition& partition = plan.partition;
  std::vector<LayerRun> runs;
  for (int64_t chunk = 0; chunk < partition.num_chunks; ++chunk)
    for (LayerRun& run : layer_runs(plan.run.model, partition.layers(stage, chunk))) runs.push_back(std::move(run));
  Row words;
  if (partition.stage_of(0) == stage) words.push_back("embedding");
  for (size_t at = 0; at < runs.size(); ++at) {
    const LayerRun& run = runs[at];
    const auto shares = [&](size_t other) { return other < runs.size() && runs[other].stack == run.stack; };
    const bool one = run.end == run.begin + 1;
    const char* const noun = one && !shares(at + 1) ? "layer " : "layers ";
    words.push_back(concat(at > 0 && shares(at - 1) ? ""
                           : run.stack.empty()      ? noun
                                                    : concat(run.stack, " ", noun),
                           run.begin, one ? "" : concat("-", run.end - 1)));
  }
  if (partition.stage_of(partition.num_layers + 1) == stage) words.push_back("output");
  return join(words, ", ");
}

std::string model_text(const RunPlan& plan) {
  const spec::ModelSpec& model = plan.run.model;
  return concat("model        ", format_count(plan.num_parameters), " parameters: ", model.description, ", vocabulary ",
                format_count(model.vocabulary.padded_size), "; ", to_string(plan.run.precision),
                plan.run.fp8 == spec::Fp8::kNone ? "" : ", linear layers of fp8 " + to_string(plan.run.fp8), "\n");
}

std::string grid_text(const RunPlan& plan) {
  const spec::GridShape& grid = plan.run.grid;
  std::string text = concat("processes    ", format_count(grid.num_ranks()), " = tensor ", grid.tensor);
  if (grid.context > 1) text += concat(" * context ", grid.context);
  text += concat(" * data ", grid.data, " * pipeline ", grid.pipeline);
  if (plan.run.sequence_parallel) text += ", sequence parallel";
  text += concat(", ZeRO stage ", plan.run.zero_stage, "\n");
  const std::string& reason = plan.run.zero_reason;
  const size_t colon = reason.find(": ");
  if (colon != std::string::npos)
    text += concat("             ", reason.substr(0, colon + 1), "\n             ", reason.substr(colon + 2), "\n");
  return text;
}

std::string step_text(const RunPlan& plan) {
  const RunShape& run = plan.run;
  const double samples = static_cast<double>(run.global_batch_size);
  return concat(
      "step         ", format_count(run.global_batch_size), " samples of ", format_count(run.sequence_length),
      " tokens: ", format_count(plan.num_micro_batches), " micro-batches of ", run.micro_batch_size,
      " on each data-parallel rank\n", "             ", format_printf("%.3g", samples * model_flops(run.model)),
      " model FLOPs, ",
      format_printf("%.3g", samples * hardware_flops(run.model, num_recomputed_layers(run.recompute, plan.partition))),
      " as BLOOM's log counts them\n");
}

std::string closed_form(const RunPlan& plan) {
  switch (plan.run.schedule) {
    case ScheduleKind::k1F1B: return "(p - 1) / (m + p - 1)";
    case ScheduleKind::kInterleaved: return "(p - 1) / (v m + p - 1)";
    case ScheduleKind::kZeroBubble: return "(p - 1) / (3 m + p - 1)";
  }
  return "";
}

std::string bubble_text(const RunPlan& plan) {
  std::string text = concat("schedule     ", to_string(plan.run.schedule));
  if (plan.partition.num_chunks > 1) text += concat(", ", plan.partition.num_chunks, " chunks a stage");
  if (plan.partition.num_stages == 1) return text + "; one stage: no bubble\n";
  text += concat("; bubble ", percent(plan.equal_bubble), " where stages are equal, ", closed_form(plan), "; ",
                 percent(plan.simulation.bubble_share), " by these stages' FLOPs\n");
  if (plan.first_num_micro_batches)
    text += concat("             while the batch grows, from ", *plan.first_num_micro_batches,
                   " micro-batches: ", percent(plan.first_bubble), " at first\n");
  return text;
}

std::string stage_table(const RunPlan& plan) {
  const bool gathers = plan.memory.stages[0].gathered > 0;
  Row head = {"stage", "holds", "parameters", "weights", "gradients", "optimizer", "activations", "alive", "workspace"};
  if (gathers) head.push_back("gathered");
  head.push_back("all");
  std::vector<Row> rows = {head};
  for (size_t stage = 0; stage < plan.memory.stages.size(); ++stage) {
    const StageMemory& memory = plan.memory.stages[stage];
    Row row = {concat(stage), holds(plan, static_cast<int64_t>(stage)), format_count(memory.num_parameters)};
    for (const double bytes : {memory.weights, memory.gradients, memory.optimizer, memory.activations})
      row.push_back(format_bytes(bytes));
    row.push_back(concat(memory.most_alive));
    row.push_back(format_bytes(memory.workspace));
    if (gathers) row.push_back(format_bytes(memory.gathered));
    row.push_back(format_bytes(memory.peak()));
    rows.push_back(row);
  }
  return "\nA rank of each stage holds, at most (alive: micro-batches between forward and backward at once):\n" +
         table_text(rows, 2);
}

// Only the axes that send.
std::string message_table(const RunPlan& plan) {
  if (plan.run.grid.num_ranks() == 1) return "";
  const std::vector<std::pair<const char*, double StageMessages::*>> axes = {{"tensor", &StageMessages::tensor},
                                                                             {"context", &StageMessages::context},
                                                                             {"pipeline", &StageMessages::pipeline},
                                                                             {"data", &StageMessages::data},
                                                                             {"tied embedding", &StageMessages::tied}};
  std::vector<Row> rows(plan.messages.size() + 1);
  rows[0] = {"stage"};
  for (size_t stage = 0; stage < plan.messages.size(); ++stage) rows[stage + 1] = {concat(stage)};
  for (const auto& [name, member] : axes) {
    double all = 0;
    for (const StageMessages& sent : plan.messages) all += sent.*member;
    if (all == 0) continue;
    rows[0].push_back(name);
    for (size_t stage = 0; stage < plan.messages.size(); ++stage)
      rows[stage + 1].push_back(format_bytes(plan.messages[stage].*member));
  }
  return "\nA rank of each stage sends in a step, by ring algorithms:\n" + table_text(rows, 1);
}

std::string bytes_text(const RunPlan& plan) {
  const Precision precision = plan.run.precision;
  const ParameterBytes each = parameter_bytes(plan.run);
  std::string text =
      concat("bytes        ", format_shortest(each.total()), " a parameter: weights ", format_shortest(each.weights),
             ", gradients ", format_shortest(each.gradients), ", optimizer ", format_shortest(each.optimizer));
  if (precision == Precision::kFp16 && plan.run.zero_stage <= 1 &&
      plan.run.optimizer->type == spec::OptimizerType::kAdam)
    text += concat(
        " (Megatron's fp16, with two kinds of gradients: ",
        format_shortest(megatron_parameter_bytes(precision, plan.run.zero_stage == 1, plan.run.num_sharers()).total()),
        ")");
  return text + "\n";
}

std::string checkpoint_text(const RunPlan& plan) {
  std::string text = concat("checkpoint   ", format_bytes(plan.checkpoint_bytes), ", its weights ",
                            format_bytes(plan.checkpoint_weight_bytes));
  if (plan.deepspeed_checkpoint_bytes > plan.checkpoint_bytes)
    text += concat(" (as Megatron-DeepSpeed writes it, the tied embedding twice: ",
                   format_bytes(plan.deepspeed_checkpoint_bytes), ")");
  return text + "\n";
}

std::string limit_text(const RunPlan& plan, std::optional<int64_t> limit) {
  const double most = plan.memory.largest().peak();
  const std::string text = "memory       " + format_bytes(most) + " on the fullest rank";
  if (!limit) return text + "\n";
  const double bytes = static_cast<double>(*limit);
  if (most <= bytes)
    return concat(text, ": fits into ", format_bytes(bytes), ", ", format_bytes(bytes - most), " left\n");
  return concat(text, ": does not fit into ", format_bytes(bytes), ", ", format_bytes(most - bytes), " too much\n");
}

char letter_of(const Action& action) {
  const char digit = static_cast<char>(action.micro_batch % 10);
  if (action.kind == Action::Kind::kForward) return static_cast<char>('0' + digit);
  return static_cast<char>((action.kind == Action::Kind::kBackward ? 'a' : 'A') + digit);
}

}  // namespace

std::string table_text(const std::vector<Row>& rows, size_t num_texts) {
  std::vector<size_t> widths(rows[0].size(), 0);
  for (const Row& row : rows)
    for (size_t column = 0; column < row.size(); ++column)
      widths[column] = std::max(widths[column], row[column].size());
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (size_t column = 0; column < row.size(); ++column) {
      const std::string blanks(widths[column] - row[column].size(), ' ');
      line += (column == 0 ? "  " : "   ") + (column < num_texts ? row[column] + blanks : blanks + row[column]);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

// Drawn as if all parts took the same, forward one column: on the real clock the columns would not be whole.
std::string schedule_text(const RunPlan& plan, size_t columns) {
  const Simulation simulation = simulate(plan.tables, 1, 1, 1);
  const size_t width = static_cast<size_t>(simulation.end);
  std::string text;
  for (size_t stage = 0; stage < plan.tables.size(); ++stage) {
    std::string line(width, '.');
    for (size_t i = 0; i < plan.tables[stage].size(); ++i) {
      const Span& span = simulation.spans[stage][i];
      const auto begin = static_cast<size_t>(span.start), end = static_cast<size_t>(span.end);
      std::fill(line.begin() + static_cast<int64_t>(begin), line.begin() + static_cast<int64_t>(end),
                letter_of(plan.tables[stage][i]));
    }
    const std::string shown = width > columns ? line.substr(0, columns - 4) + " ..." : line;
    text += format_printf("  %5zu   ", stage) + shown + "\n";
  }
  return text;
}

std::string to_text(const RunPlan& plan, std::optional<int64_t> memory_limit) {
  std::string text = model_text(plan) + grid_text(plan) + step_text(plan) + bubble_text(plan);
  text += bytes_text(plan) + checkpoint_text(plan) + limit_text(plan, memory_limit) + stage_table(plan) +
          message_table(plan);
  if (plan.partition.num_stages == 1) return text;
  text += "\nStages over time (0-9 forward of a micro-batch by its last digit, a-j backward";
  if (plan.run.schedule == ScheduleKind::kZeroBubble) text += ", A-J weight gradients";
  return text + ", . idle):\n" + schedule_text(plan, 110);
}

}  // namespace espalier::plan
