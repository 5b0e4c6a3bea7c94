// The ranks of this machine in one round, as processes: with their output, the watch for hangs and the socket of
// espalier ctl.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/whereabouts.h"
#include "launch/control.h"
#include "launch/hang_watch.h"
#include "launch/internal/round_files.h"
#include "launch/output.h"
#include "launch/ranks.h"
#include "launch/stacks.h"
#include "launch/worker_group.h"

namespace espalier::launch::internal {

class LocalRanks : public Ranks {
 public:
  // Of the launcher, for all rounds.
  struct Launch {
    const LaunchOptions& options;
    const RankProgram& program;
    const RoundFiles& files;
    std::function<void()> kill;  // what espalier ctl kill does
  };
  using Workers = std::function<std::vector<Worker>(OutputPump& pump, const WhereaboutsBoard& board)>;

  LocalRanks(const Launch& launch, const Round& round, const Workers& workers);

  void reap() override;
  void end_hung(const std::optional<ToldToEnd>& told) override;
  double bound_at_end() const override { return hangs_->rules().shortest > 0 ? hangs_->rules().bound_at_end() : 0; }
  int64_t num_running() const override { return group_.num_running(); }
  bool all_well() const override { return group_.all_well(); }
  const std::vector<Failure>& failures() const override { return group_.failures(); }
  Sight sight() const override { return board_.sight(0); }
  void send(int signal) override { group_.send(signal); }
  void stop(int signal, double patience_seconds) override;
  void finish_output() override;
  bool may_be_held() const override { return group_.any_offered(); }
  int64_t hold(double patience_seconds) override;
  void let_go_of_strays() override { group_.let_go_of_strays(); }

  // After hold().
  void start_again(const Round& round, const Workers& workers);
  bool is_held(int64_t local_rank) const { return group_.is_held(static_cast<size_t>(local_rank)); }

 private:
  std::unique_ptr<HangWatch> watch_for_hangs(const Round& round) const;
  void serve_control(const Round& round);
  void end_hang(const Hang& hang, const std::string& told_by);
  void tell(const Incident& incident) const;
  std::string note_stacks(const std::string& reason, const std::string& run_folder,
                          const std::vector<RankStacks>& stacks) const;

  Launch launch_;
  int64_t first_rank_;
  OutputPump pump_;
  const WhereaboutsBoard board_;
  std::unique_ptr<HangWatch> hangs_;
  WorkerGroup group_;
  std::unique_ptr<Control> control_;
};

}  // namespace espalier::launch::internal
