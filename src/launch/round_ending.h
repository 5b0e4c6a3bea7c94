// How a round of several launchers ends, so that all of them know it alike. All through the store they met by:
//   outcome()       says, while the ranks run, whether the round is over anywhere
//   report_...()    ends it for everybody: when all are done, or at once when one has failed
//   agree_on_end()  says of a round that has failed why, to all the same
// The death of a launcher is noticed by its connection, and its round fails.
//
// A method throws RendezvousLost where the store is gone.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "launch/failure.h"
#include "launch/rendezvous_store.h"
#include "launch/round.h"
#include "launch/surroundings.h"

namespace espalier::launch {

namespace internal {
struct EndRecord;
}  // namespace internal

enum class RoundOutcome {
  kRunning,
  kDone,
  kFailed,
  kLostStore,
  kRegroups,  // all ranks have ended well, to start again with other machines
};

enum class ToldAnywhere { kNot, kToEnd, kToEndForGood };

// Of a round whose machines have stopped their ranks.
struct RoundEnd {
  // kDone, kRegroups: all had ended well, though a launcher has died. kLostStore: nobody could be asked.
  RoundOutcome outcome = RoundOutcome::kLostStore;
  std::vector<Failure> failures;           // of the machines that had stopped in time, sorted by cause
  ToldAnywhere told = ToldAnywhere::kNot;  // the run was told to end, on whatever machine
  bool counts_own = true;                  // this machine had stopped in time
};

class RoundEnding {
 public:
  // What launchers meet with; all of it has to live as long as what is made with it.
  struct Means {
    RendezvousStore& store;    // a connection of its own, which tells of its death
    RendezvousStore& watched;  // another, for the task that watches the round
    Surroundings& surroundings;
  };
  // From here on this launcher's last will says that it has vanished, and that the round has failed by that.
  RoundEnding(const Means& means, Round round);
  ~RoundEnding();
  RoundEnding(const RoundEnding&) = delete;
  RoundEnding& operator=(const RoundEnding&) = delete;

  const Round& round() const { return round_; }

  void watch();  // in a task of its own, until stop_watching(): the round has begun
  void stop_watching();
  // Any time, cheap.
  RoundOutcome outcome() const { return outcome_; }

  // The ranks are about to be told to stop, and the round is to be followed by another although they end well.
  void ask_to_regroup();
  void forget_to_regroup();  // the job is to end after all

  // This machine's ranks have ended well. The round is over when all have.
  void report_done();
  // A rank has failed here, or is about to be stopped: tells the other machines.
  void report_failed();
  // This machine's ranks have stopped.
  void report_stopped(const std::vector<Failure>& failures);
  // Before this machine says that its ranks have stopped: the run was told to end here. `for_good`: it is not to start
  // once more, for what its ranks have in memory.
  void report_told(bool for_good);
  // Waits for the others to stop as well, at most that long, and no less than the store may take to notice that a
  // machine has vanished. The first that knows the end, or whose time is over, writes it down, and whoever asks gets
  // that: all decide alike. Machines that had not stopped by then do not count.
  RoundEnd agree_on_end(double patience_seconds);

 private:
  std::string key(const std::string& name) const;
  std::string stopped_key(size_t node) const;
  Failure lost_machine(size_t node, const std::string& what) const;
  void look_until_over();
  std::vector<size_t> those_that_have_stopped(Surroundings::Time deadline);
  std::vector<Failure> failures_of(const internal::EndRecord& record);
  ToldAnywhere told();
  internal::EndRecord agree(RendezvousStore& store, internal::EndRecord mine) const;
  bool all_are_done(RendezvousStore& store) const;
  RoundOutcome outcome_after_all(RendezvousStore& store) const;  // as far as this machine can know it
  RoundOutcome end_well(RendezvousStore& store) const;           // how the round ended

  RendezvousStore &store_, &watched_;
  Surroundings& surroundings_;
  const Round round_;
  std::atomic<RoundOutcome> outcome_ = RoundOutcome::kRunning;
  std::atomic<bool> leaving_ = false;
  std::unique_ptr<Task> watcher_;
};

}  // namespace espalier::launch
