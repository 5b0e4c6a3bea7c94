#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/format.h"
#include "plan/faults/fault_model.h"

namespace espalier::plan {
namespace {

constexpr int64_t kMostRuns = 1000, kLeastRuns = 50;
// Of all simulated runs together: about a second.
constexpr double kMostFaults = 2e7;

std::string share_text(double share) { return format_fixed(100 * share, 2) + " %"; }

// "3 h 05 min", or days where it is more than two; "0.00172 s".
std::string span_text(double seconds) {
  if (seconds > 0 && seconds < 0.1) return format_printf("%.3g s", seconds);
  return seconds < 2 * 86400 ? format_duration(seconds) : format_fixed(seconds / 86400, 1) + " days";
}

}  // namespace

FaultPlan plan_faults(const FaultModel& model, const FaultRate& rate, double run_seconds, double horizon,
                      int64_t save_steps) {
  const double between = model.mean_time_between(), back = model.detect + model.restart;
  if (between < back / 10 || between < model.step / 10)
    throw UserError(
        concat("--faults: ", format_printf("%.3g", model.faults_per_day()), " failures a day, one in ",
               format_duration(between), ", where a restart takes ", format_duration(back), " and a step ",
               format_duration(model.step), ": such a run never makes progress; give a lower rate or fewer nodes"),
        ExitCode::kUsage);
  FaultPlan plan{.model = model, .rate = rate, .run_seconds = run_seconds, .asked_steps = save_steps};
  // A run saves at its end: no interval is longer than that.
  const int64_t run_steps = std::max<int64_t>(1, std::llround(run_seconds / model.step));
  const double best = std::min(best_interval(model), run_seconds);
  plan.best_steps = std::max<int64_t>(1, std::llround(best / model.step));
  plan.saves_once = plan.best_steps >= run_steps;
  plan.best_ettr = expected_ettr(model, static_cast<double>(plan.best_steps) * model.step);
  plan.asked_once = save_steps >= run_steps;
  if (save_steps > 0)
    plan.asked_ettr = expected_ettr(model, static_cast<double>(std::min(save_steps, run_steps)) * model.step);
  // What is simulated has a save, as what is computed.
  const int64_t interval_steps = std::min(plan.steps(), run_steps);
  horizon = std::max(horizon, static_cast<double>(interval_steps) * model.step + model.save);
  const double runs = std::clamp(kMostFaults * between / horizon, double{kLeastRuns}, double{kMostRuns});
  plan.study = study_faults(model, interval_steps, horizon, static_cast<int64_t>(runs));
  return plan;
}

std::string fault_text(const FaultPlan& plan) {
  const FaultModel& model = plan.model;
  const auto interval = [&](int64_t steps) {
    return concat(format_counted(steps, "step"), " (", span_text(static_cast<double>(steps) * model.step), ")");
  };
  std::string text = concat("\nfailures     ", format_printf("%.3g", model.faults_per_day()), " a day on ",
                            format_counted(static_cast<int64_t>(model.num_nodes), "node"), ", by ", plan.rate.name,
                            "; ", format_shortest(model.detect), " s until one is detected, ",
                            format_shortest(model.restart), " s until training resumes\n");
  text += concat("             rate: ", plan.rate.source, "\n");
  text += concat("saves        best ",
                 plan.saves_once ? concat("only at the end: the run, ", interval(plan.best_steps), ", is shorter than")
                                 : concat("every ", interval(plan.best_steps)),
                 plan.saves_once ? " an interval;" : ",", plan.saves_once ? " a save takes " : " each ",
                 format_shortest(model.save), " s: ", share_text(plan.best_ettr), " of the time is effective\n",
                 "             (Young ", span_text(young_interval(model)), ", Daly ", span_text(daly_interval(model)),
                 ")\n");
  if (plan.asked_steps > 0)
    text += concat("             as asked, every ", interval(plan.asked_steps),
                   plan.asked_once ? ", only at the end" : "", ": ", share_text(plan.asked_ettr), "\n");
  const FaultStudy& study = plan.study;
  const FaultRun& run = study.average;
  text += concat("simulated    ", format_count(study.num_runs), " seeded runs of ", span_text(run.wall), ": ",
                 share_text(study.mean), ", in one of twenty less than ", share_text(study.low), ";\n             ",
                 format_counted(run.num_faults, "failure"), ", ", span_text(run.redone), " done again, ",
                 span_text(run.down), " down, ", span_text(run.saving), " in saves\n");
  return text + concat("in all       ", span_text(plan.run_seconds / plan.ettr()), " for what takes ",
                       span_text(plan.run_seconds), " undisturbed\n");
}

}  // namespace espalier::plan
