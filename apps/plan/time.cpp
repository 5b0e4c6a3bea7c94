#include "apps/plan/time.h"

#include <cmath>

#include "plan/faults/fault_model.h"
#include "plan/time/node_change.h"
#include "plan/time/time_text.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

int64_t num_samples(const PlanRequest& request) {
  if (!request.tokens) return request.config.training.num_samples;
  const int64_t sequence = request.config.data.sequence_length;
  const int64_t samples = (*request.tokens + sequence - 1) / sequence;
  if (!request.config.training.rampup_batch_size.empty()) return samples;
  const int64_t batch = *request.config.training.global_batch_size;  // of whole steps
  return (samples + batch - 1) / batch * batch;
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

plan::FaultPlan fault_plan(const PlanRequest& request, const plan::RunShape& run, const plan::StepTime& step,
                           const plan::RunTime& time) {
  plan::FaultModel model;
  const plan::FaultRate rate = plan::find_fault_rate(request.faults);
  model.num_nodes = std::ceil(static_cast<double>(run.grid.num_ranks()) / request.machine->devices_per_node);
  model.faults_per_node_day = rate.per_node_day;
  model.detect = request.detect_seconds.value_or(model.detect);
  model.restart = request.restart_seconds.value_or(model.restart);
  model.save = request.save_seconds.value_or(model.save);
  model.step = step.seconds;
  const double horizon = request.fault_days ? *request.fault_days * plan::kSecondsPerDay : time.seconds;
  return plan::plan_faults(model, rate, time.seconds, horizon, request.config.checkpoint.save_interval.value_or(0));
}

Json faults_json(const plan::FaultPlan& plan) {
  const plan::FaultModel& model = plan.model;
  const plan::FaultRun& average = plan.study.average;
  Json json = {{"rate", plan.rate.name},
               {"source", plan.rate.source},
               {"faults_per_day", model.faults_per_day()},
               {"detect_seconds", model.detect},
               {"restart_seconds", model.restart},
               {"save_seconds", model.save},
               {"best_save_interval", plan.best_steps},
               {"best_ettr", plan.best_ettr}};
  if (model.faults_per_day() > 0) {
    json["young_seconds"] = plan::young_interval(model);
    json["daly_seconds"] = plan::daly_interval(model);
  }
  if (plan.asked_steps > 0) {
    json["save_interval"] = plan.asked_steps;
    json["ettr"] = plan.asked_ettr;
  }
  json["days"] = plan.run_seconds / plan.ettr() / plan::kSecondsPerDay;
  json["simulation"] = {{"runs", plan.study.num_runs},      {"days", average.wall / plan::kSecondsPerDay},
                        {"mean_ettr", plan.study.mean},     {"percentile_5", plan.study.low},
                        {"percentile_95", plan.study.high}, {"faults", average.num_faults},
                        {"redone_seconds", average.redone}, {"down_seconds", average.down},
                        {"saving_seconds", average.saving}};
  return json;
}

Json changes_json(const std::vector<plan::NodeChange>& changes) {
  Json rows = Json::array();
  for (const plan::NodeChange& change : changes)
    rows.push_back({{"nodes", change.num_nodes},
                    {"data", change.data},
                    {"spare_devices", change.spare_devices},
                    {"global_batch_size", change.global_batch_size},
                    {"step_seconds", change.step.seconds},
                    {"tokens_per_second", change.step.tokens},
                    {"days", change.seconds / plan::kSecondsPerDay},
                    {"device_hours", change.device_hours}});
  return rows;
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
  if (!request.faults.empty()) json["failures"] = faults_json(fault_plan(request, run, step, time));
  if (request.node_changes) json["node_changes"] = changes_json(plan::node_changes(run, machine, num_samples(request)));
  json["machine"] = machine_json(machine);
  return json;
}

std::string time_page(const PlanRequest& request, const plan::RunShape& run) {
  const plan::Machine& machine = *request.machine;
  const plan::StepClock clock(run, machine);
  const plan::StepTime step = clock.at();
  const plan::RunTime time = plan::run_time(run, machine, clock, num_samples(request));
  std::string text = plan::time_text(run, machine, step, time);
  if (request.timetable) text += plan::timetable_text(run, machine, time);
  if (request.node_changes) text += plan::node_change_text(run, plan::node_changes(run, machine, num_samples(request)));
  if (!request.faults.empty()) text += plan::fault_text(fault_plan(request, run, step, time));
  if (request.sources) text += plan::machine_text(machine);
  return text;
}

}  // namespace espalier
