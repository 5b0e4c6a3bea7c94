// The loop of `espalier watch`: looks, tells, has chores done, and leaves a heartbeat.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "apps/watch/options.h"
#include "launch/alert_sender.h"
#include "store/run_lock.h"
#include "watch/chores.h"
#include "watch/heartbeat.h"
#include "watch/job_records.h"
#include "watch/judge.h"

namespace espalier {

// What one look finds.
struct WatchFindings {
  watch::WatchSight sight;
  std::vector<watch::QueuedJob> jobs;
  std::vector<watch::Trouble> troubles;
};

class WatchDaemon {
 public:
  // A UserError where another process watches one of the runs.
  explicit WatchDaemon(const WatchOptions& options);
  ~WatchDaemon();
  WatchDaemon(const WatchDaemon&) = delete;
  WatchDaemon& operator=(const WatchDaemon&) = delete;

  void run();  // until a signal ends it

 private:
  struct Undelivered {
    std::string alert;
    double again = 0;
  };
  void look(double now);
  void tell(const watch::Trouble& trouble);
  void send_again(double now);
  void add_chores();
  void want_chores(const std::vector<watch::RunSight>& runs, double now);
  void note_chores(double now);
  std::vector<watch::Trouble> look_at_jobs(const WatchFindings& found);
  std::string submit(const watch::ChainStep& step, const watch::RunSight& run);
  void look_for_blame(std::vector<watch::Trouble>& troubles);
  void ask_for_job_records(double now);
  void beat(bool has_ended);
  void remember();

  const WatchOptions& options_;
  std::vector<store::RunLock> locks_;
  watch::Judge judge_;
  watch::Chain chain_;
  watch::Chores chores_, slow_chores_;  // slow_: those that take hours, beside the others
  watch::Incidents incidents_;
  watch::Heartbeat heartbeat_;
  std::string trouble_of_submission_;
  double scheduler_well_ = 0, ask_records_at_ = 0;
  std::vector<watch::JobRecord> job_records_;  // of SLURM's accounting, where it keeps any
  std::mutex mutex_;
  std::vector<Undelivered> undelivered_;
  std::unique_ptr<launch::AlertSender> sender_;  // last: its thread uses the others
};

// One look, by a judge that may remember earlier ones. `scheduler_trouble`: why the jobs are not known.
WatchFindings look_once(const WatchOptions& options, watch::Judge& judge, double now, std::string& scheduler_trouble);

}  // namespace espalier
