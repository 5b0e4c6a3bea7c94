#include "plan_time.h"

#include "plan/time/time_text.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

int64_t num_samples(const PlanRequest& request) {
  if (!request.tokens) return request.config.training.num_samples;
  const int64_t sequence = request.config.data.sequence_length;
  return (*request.tokens + sequence - 1) / sequence;
}

Json periods_json(const plan::RunTime& time) {
  Json periods = Json::array();
  for (const plan::BatchPeriod& period : time.periods)
    periods.push_back({{"global_batch_size", period.global_batch_size},
                       {"steps", period.num_steps},
                       {"step_seconds", period.step_seconds},
                       {"end_seconds", period.end_seconds},
                       {"end_samples", period.end_samples}});
  return periods;
}

Json machine_json(const plan::Machine& machine) {
  Json numbers = Json::object();
  for (const plan::MachineField& field : plan::machine_fields()) numbers[field.key] = machine.*field.value;
  return {{"name", machine.name}, {"numbers", numbers}, {"sources", machine.sources}};
}

}  // namespace

Json time_json(const PlanRequest& request, const plan::RunShape& run) {
  const plan::Machine& machine = *request.machine;
  const plan::StepClock clock(run, machine);
  const plan::StepTime step = clock.at();
  const plan::RunTime time = plan::run_time(run, machine, clock, num_samples(request));
  const plan::StepParts& parts = step.parts;
  Json json = {{"step_seconds", step.seconds},
               {"tokens_per_second", step.tokens},
               {"hardware_tflops", step.hardware_flops / 1e12},
               {"model_tflops", step.model_flops / 1e12},
               {"utilization", step.utilization},
               {"limited_by", step.limit()},
               {"limit_share", step.limit_share()},
               {"busiest_stage", step.busiest_stage},
               {"parts_seconds",
                {{"matrices", parts.matrices},
                 {"attention", parts.attention},
                 {"moving", parts.moving},
                 {"recompute", parts.recompute},
                 {"tensor", parts.tensor},
                 {"context", parts.context},
                 {"pipeline", parts.pipeline},
                 {"bubble", parts.bubble},
                 {"data", parts.data},
                 {"optimizer", parts.optimizer}}},
               {"tokens", time.tokens},
               {"steps", time.num_steps},
               {"days", time.seconds / plan::kSecondsPerDay},
               {"ramp_steps", time.ramp_steps},
               {"ramp_days", time.ramp_seconds / plan::kSecondsPerDay},
               {"periods", periods_json(time)},
               {"device_hours", time.device_hours},
               {"device_kwh", time.device_kwh},
               {"site_kwh", time.site_kwh}};
  if (time.price > 0) {
    json["price"] = time.price;
    json["currency"] = machine.currency;
  }
  json["machine"] = machine_json(machine);
  return json;
}

std::string time_page(const PlanRequest& request, const plan::RunShape& run) {
  const plan::Machine& machine = *request.machine;
  const plan::StepClock clock(run, machine);
  std::string text =
      plan::time_text(run, machine, clock.at(), plan::run_time(run, machine, clock, num_samples(request)));
  if (request.sources) text += plan::machine_text(machine);
  return text;
}

}  // namespace espalier
