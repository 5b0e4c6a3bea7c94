#include "plan/time/time_text.h"

#include <cmath>

#include "base/format.h"
#include "plan/run_plan.h"

namespace espalier::plan {
namespace {

constexpr double kTera = 1e12;

// "133.9 days"; less than one in smaller units, "0.00172 s".
std::string days_text(double seconds) {
  if (seconds > 0 && seconds < 0.1) return format_printf("%.3g s", seconds);
  return seconds < kSecondsPerDay ? format_duration(seconds) : format_fixed(seconds / kSecondsPerDay, 1) + " days";
}

// "105.3 s", "0.412 s".
std::string seconds_text(double seconds) { return format_printf(seconds < 1 ? "%.3g s" : "%.4g s", seconds); }

std::string parts_text(const StepTime& step) {
  const StepParts& parts = step.parts;
  const std::vector<std::pair<const char*, double>> rows = {
      {"matrix products", parts.matrices}, {"attention", parts.attention},    {"moving bytes", parts.moving},
      {"recompute", parts.recompute},      {"tensor messages", parts.tensor}, {"context messages", parts.context},
      {"stage messages", parts.pipeline},  {"pipeline bubble", parts.bubble}, {"data messages", parts.data},
      {"optimizer", parts.optimizer},
  };
  std::vector<std::vector<std::string>> table = {
      {"of a step, on stage " + std::to_string(step.busiest_stage), "seconds", "share"}};
  for (const auto& [name, seconds] : rows)
    if (seconds > 0)
      table.push_back({name, format_printf(step.seconds < 0.1 ? "%.3g" : "%.3f", seconds),
                       format_printf("%.1f %%", 100 * seconds / step.seconds)});
  return "\n" + table_text(table, 1);
}

// "493,759"; less than ten with its first digits, "0.00213".
std::string amount_text(double amount) {
  return amount < 10 ? format_printf("%.3g", amount) : format_count(static_cast<int64_t>(amount));
}

std::string bill_text(const Machine& machine, const RunTime& time) {
  std::string text =
      concat("energy       ", amount_text(time.device_kwh), " kWh of devices, ", amount_text(time.site_kwh),
             " kWh with their nodes", machine.power_overhead > 1 ? " and the site" : "", "; ",
             amount_text(time.device_hours), " device-hours\n");
  if (time.price > 0)
    text += concat("bill         ", amount_text(time.price), " ", machine.currency, " at ",
                   format_shortest(machine.device_hour_price), " a device-hour\n");
  return text;
}

}  // namespace

std::string time_text(const RunShape& run, const Machine& machine, const StepTime& step, const RunTime& time) {
  std::string text =
      concat("\nmachine      ", machine.name, ": a prediction from published rates, not a measurement\n");
  text += concat("step         ", seconds_text(step.seconds), ", ",
                 format_count(static_cast<int64_t>(std::round(step.tokens))), " tokens/s; a device does ",
                 format_fixed(step.hardware_flops / kTera, 1), " TFLOP/s as BLOOM's log counts them,\n",
                 "             ", format_fixed(step.model_flops / kTera, 1), " of the model's, ",
                 format_fixed(100 * step.utilization, 1), " % of the peak\n");
  text += concat("limited by   ", step.limit(), ", ", format_fixed(100 * step.limit_share(), 1), " % of the step\n");
  text += concat("duration     ", days_text(time.seconds), " for ", format_printf("%.4g", time.tokens), " tokens in ",
                 format_count(time.num_steps), " steps, without stops, evaluation and saves\n");
  if (time.ramp_steps == time.num_steps && time.ramp_steps > 0)
    text += concat("             which never has the full batch of ", format_count(run.global_batch_size),
                   ", that of the step above: it ends at ", format_count(time.periods.back().global_batch_size), "\n");
  else if (time.ramp_steps > 0)
    text += concat("             of which ", days_text(time.ramp_seconds), " and ", format_count(time.ramp_steps),
                   " steps while the batch grows to ", format_count(run.global_batch_size), "\n");
  return text + bill_text(machine, time) + parts_text(step);
}

std::string machine_text(const Machine& machine) {
  std::string text = concat("\nWhat this comes from (", machine.name, "):\n");
  for (const MachineField& field : machine_fields()) {
    const auto source = machine.sources.find(field.key);
    if (source == machine.sources.end() && machine.*field.value == Machine().*field.value) continue;
    text += concat("  ", field.key, " = ", format_shortest(machine.*field.value), "   ",
                   source == machine.sources.end() ? "no source given" : source->second, "\n");
  }
  return text;
}

}  // namespace espalier::plan
