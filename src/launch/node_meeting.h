// How the launchers of several machines agree: who takes part, in which order, when a round has failed, and why.
//
// A round is one start of the whole group. All through one rendezvous store, which the launcher at the endpoint hosts:
//   join()       waits for enough machines and numbers them
//   outcome()    says, while the ranks run, whether the round is over anywhere
//   larger_group()  says which machines wait, without whom the round began and with whom more ranks could run
//   report...()  ends it for everybody: when all are done, or at once when one has failed
//   agree_on_end()   says of a round that has failed why, to all the same
//   leave_history()  says what those who meet for the next one are to know, alike
// The death of a launcher is noticed by its connection, and its round fails.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launch/failure.h"
#include "launch/launch_options.h"
#include "launch/rendezvous_store.h"
#include "launch/surroundings.h"

namespace espalier::launch {

namespace internal {
struct EndRecord;
struct World;
}  // namespace internal

struct Node {
  std::string id;       // of one launcher
  std::string address;  // for the others
  int64_t pid = 0, node_rank = 0, num_ranks = 0;
  int free_port = 0;  // there, for MASTER_PORT of foreign programs
};

struct Round {
  int64_t number = 0;       // 0, 1, ...: how often the group has been started again
  std::vector<Node> nodes;  // in the order of their ranks
  size_t node = 0;          // this one
  int64_t first_rank = 0, world_size = 0;
  bool was_without_this_node = false;  // one that began before: this machine came too late for it, or was not needed
  std::string history;                 // what was left last by leave_history(); the same for all
};

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

// Whether the program can run on so many ranks.
using FitsRanks = std::function<bool(int64_t num_ranks)>;

class NodeMeeting {
 public:
  // What it meets with; all of it has to live as long.
  struct Means {
    RendezvousStore& store;    // a connection of its own, which tells of its death
    RendezvousStore& watched;  // another, for the task that watches the round
    Surroundings& surroundings;
  };
  // `self`: this machine, as far as it is the same in all rounds. `fits`: machines too many for it are left out, and
  // wait. Empty: any number is right.
  NodeMeeting(const LaunchOptions& options, const Means& means, Node self, FitsRanks fits = {});
  ~NodeMeeting();

  // Waits for the machines of the next round. Nothing if the job ended without this machine, or if `is_cancelled` says
  // so. UserError if they do not come in time.
  std::optional<Round> join(const std::function<bool()>& is_cancelled);

  // Of the round that was joined last. Any time, cheap.
  RoundOutcome outcome() const { return outcome_; }

  // Machines that wait for the next start, if they wait that long and more ranks could run with them; else none.
  std::vector<Node> larger_group(double waited_seconds);
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
  // Of this round, before the next is joined: what all that take part in that one are to know alike. What is left first
  // holds. It goes from round to round until there is another, also over those that never begin.
  void leave_history(const std::string& text);
  // Whether the run can go on without that machine of the round, with those that wait; all launchers get one answer.
  bool others_are_enough(size_t without);
  // No round follows: for machines that wait. `well`: the job has done what it was to do, or has stopped as it was
  // told. Once the next round has been formed without this machine, it says nothing.
  void report_over(bool well);
  bool is_over_badly();
  // join() has ended without a round: whether the others would wait for this machine, as it has no place to wait for.
  bool is_awaited();
  // Of a machine that takes part no more, but hosts the rendezvous store: until the run is over, or all others have
  // left and nobody has come in the time to join.
  void wait_until_over(const std::function<bool()>& is_cancelled);

 private:
  std::string key(const std::string& name) const;
  std::string stopped_key(size_t node) const;
  std::vector<Node> nodes_in(const std::string& list);  // but those that have left
  // This launcher's last will: that it has left this round, and what else these keys say.
  void leave_departure(std::vector<std::string> keys = {}, std::vector<std::string> values = {});
  bool any_has_left(const std::vector<Node>& nodes);
  std::string missing(const std::vector<Node>& nodes) const;
  std::vector<Node> number_nodes(std::vector<Node> nodes) const;
  std::vector<Node> largest_fitting(std::vector<Node> nodes, const std::set<std::string>& preferred) const;
  // What the rounds before one leave it.
  struct Before {
    int64_t last_begun = -1;        // the last that began; -1: none has
    std::set<std::string> members;  // of that one, by id
    std::string history;
  };
  const Before& before();
  internal::World world_of(int64_t round);
  bool has_begun(int64_t round);
  bool awaits_former(const std::vector<Node>& nodes);
  internal::World meet(const std::function<bool()>& is_cancelled);
  bool next_round_comes(const std::function<bool()>& is_cancelled);
  std::vector<size_t> those_that_have_stopped(Surroundings::Time deadline);
  ToldAnywhere told();
  internal::EndRecord agree(RendezvousStore& store, internal::EndRecord mine) const;
  bool is_anybody_in_the_run();
  bool all_have_left();                             // of the machines of this round
  bool all_are_done(RendezvousStore& store) const;  // the same
  void leave();                                     // for good
  bool all_are_ready(const std::vector<Node>& nodes);
  std::optional<Round> take_part(const internal::World& world);
  RoundOutcome outcome_after_all(RendezvousStore& store) const;  // as far as this machine can know it
  RoundOutcome end_well(RendezvousStore& store) const;           // how the round ended
  void watch();
  void stop_watching();

  const LaunchOptions& options_;
  RendezvousStore &store_, &watched_;
  Surroundings& surroundings_;
  Node self_;
  FitsRanks fits_;
  int64_t round_ = -1;
  std::vector<Node> nodes_;
  std::map<std::string, Node> cards_;  // of machines that have come in the round `round_of_cards_`, by id
  int64_t round_of_cards_ = -1;
  std::map<std::string, Surroundings::Time> waiting_since_;  // machines, by id
  Before before_;                                            // of the round `round_of_before_`
  int64_t round_of_before_ = -1;
  std::atomic<RoundOutcome> outcome_ = RoundOutcome::kRunning;
  std::atomic<bool> leaving_ = false;
  std::unique_ptr<Task> watcher_;
};

}  // namespace espalier::launch
