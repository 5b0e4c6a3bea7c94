// How the launchers of several machines agree who takes part in a round, and in which order. A round is one start of
// the whole group. All through one rendezvous store, which the launcher at the endpoint hosts:
//   join()           waits for enough machines and numbers them
//   ending()         of the round that was joined last: how the machines agree that it is over, and why
//   larger_group()   says which machines wait, without whom the round began and with whom more ranks could run
//   leave_history()  says what those who meet for the next one are to know, alike
//   report_over()    says that no round follows
//
// A method throws RendezvousLost where the store is gone.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launch/launch_options.h"
#include "launch/rendezvous_store.h"
#include "launch/round.h"
#include "launch/round_ending.h"
#include "launch/surroundings.h"

namespace espalier::launch {

namespace internal {
struct World;
}  // namespace internal

// Whether the program can run on so many ranks.
using FitsRanks = std::function<bool(int64_t num_ranks)>;

class NodeMeeting {
 public:
  // `self`: this machine, as far as it is the same in all rounds. `fits`: machines too many for it are left out, and
  // wait. Empty: any number is right.
  NodeMeeting(const LaunchOptions& options, const RoundEnding::Means& means, Node self, FitsRanks fits = {});
  ~NodeMeeting();

  // Waits for the machines of the next round. Nothing if the job ended without this machine, or if `is_cancelled` says
  // so. UserError if they do not come in time.
  std::optional<Round> join(const std::function<bool()>& is_cancelled);

  // Of the round that was joined last; there has to be one.
  RoundEnding& ending() { return *ending_; }

  // Machines that wait for the next start, if they wait that long and more ranks could run with them; else none.
  std::vector<Node> larger_group(double waited_seconds);
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
  std::vector<Node> nodes_in(const std::string& list);  // but those that have left
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
  bool is_anybody_in_the_run();
  bool all_have_left();  // of the machines of this round
  void leave();          // for good
  bool all_are_ready(const std::vector<Node>& nodes);
  std::optional<Round> take_part(const internal::World& world);

  const LaunchOptions& options_;
  const RoundEnding::Means means_;
  RendezvousStore& store_;
  Surroundings& surroundings_;
  Node self_;
  FitsRanks fits_;
  int64_t round_ = -1;
  std::map<std::string, Node> cards_;  // of machines that have come in the round `round_of_cards_`, by id
  int64_t round_of_cards_ = -1;
  std::map<std::string, Surroundings::Time> waiting_since_;  // machines, by id
  Before before_;                                            // of the round `round_of_before_`
  int64_t round_of_before_ = -1;
  std::optional<RoundEnding> ending_;
};

}  // namespace espalier::launch
