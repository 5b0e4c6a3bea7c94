// What failures cost a run: how often its nodes fail, what a failure and a save take, and what is left of the time.
//
// Effective time (ETTR) is the undisturbed time of the steps that are kept over the time that passes, both since the
// first launch; work that is done again, waits for detection and restart, and saves that training waits for are lost.
// Failures are independent and as likely at any time (exponential), also while a run restarts; any of them ends the
// attempt, and what was done since the last complete save is done again.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace espalier::plan {

// Times in seconds.
struct FaultModel {
  double num_nodes = 1;
  double faults_per_node_day = 0;
  double detect = 5;     // from the failure until it is known
  double restart = 900;  // from then until training resumes: MegaScale's quarter of an hour (Jiang et al. 2024)
  double save = 40;      // that training waits for each save: BLOOM's (bigscience, train/tr11-176B-ml/chronicles.md)
  double step = 1;       // undisturbed

  double faults_per_day() const { return faults_per_node_day * num_nodes; }
  double mean_time_between() const;  // infinite without faults
};

// Published rates, a node of 8 devices and a day, with their sources.
struct FaultRate {
  const char* name;
  double per_node_day;
  const char* source;
};
const std::vector<FaultRate>& fault_rates();
// One of those by name, or a number of failures of a node and day. UserError (usage) where it is neither.
FaultRate find_fault_rate(const std::string& name_or_number);

// Share of the time that is effective with a save every `interval` seconds of work: work over its expected wall time
// (Daly 2006; restarts may fail as well).
double expected_ettr(const FaultModel& model, double interval);

// Work between saves with which that is most: Young 1974, Daly's higher-order estimate (2006), and the maximum of
// expected_ettr() itself, found by bisection of its derivative's sign; no less than a step. Infinite without faults.
double young_interval(const FaultModel& model);
double daly_interval(const FaultModel& model);
double best_interval(const FaultModel& model);

// One run on a virtual clock, by whole steps.
struct FaultRun {
  int64_t num_faults = 0;
  double wall = 0, kept = 0, redone = 0, down = 0, saving = 0;
  double ettr() const { return kept / wall; }
};
// `save_steps`: steps between saves. The same seed gives the same run on every machine.
FaultRun simulate_faults(const FaultModel& model, int64_t save_steps, double horizon, uint64_t seed);

// Of many seeds, 0 and up.
struct FaultStudy {
  int64_t num_runs = 0;
  double mean = 0, low = 0, high = 0;  // effective time: mean, 5th and 95th percentile of runs
  double mean_error = 0;               // standard error of the mean
  FaultRun average;
};
FaultStudy study_faults(const FaultModel& model, int64_t save_steps, double horizon, int64_t num_runs);

// What `espalier plan --faults` prints.
struct FaultPlan {
  FaultModel model;
  FaultRate rate;
  double run_seconds = 0;  // undisturbed
  int64_t best_steps = 0;  // between saves
  double best_ettr = 0;
  // No longer than the run, which saves at its end: there is no other save.
  bool saves_once = false, asked_once = false;
  int64_t asked_steps = 0;  // of --save-interval; 0 where there is none
  double asked_ettr = 0;
  FaultStudy study;  // with the asked interval, or else the best
  int64_t steps() const { return asked_steps > 0 ? asked_steps : best_steps; }
  double ettr() const { return asked_steps > 0 ? asked_ettr : best_ettr; }
};
FaultPlan plan_faults(const FaultModel& model, const FaultRate& rate, double run_seconds, double horizon,
                      int64_t save_steps);
std::string fault_text(const FaultPlan& plan);

}  // namespace espalier::plan
