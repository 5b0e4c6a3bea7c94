// How the launchers of several machines agree: who takes part, in which order, when a round has failed, and why.
//
// A round is one start of the whole group. All through one rendezvous store, which the launcher at the endpoint hosts:
//   join()       waits for enough machines and numbers them
//   outcome()    says, while the ranks run, whether the round is over anywhere
//   report...()  ends it for everybody: when all are done, or at once when one has failed
// The death of a launcher is noticed by its connection, and its round fails.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "launch/failure.h"
#include "launch/launch_options.h"
#include "launch/rendezvous_client.h"

namespace espalier::launch {

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
};

enum class RoundOutcome { kRunning, kDone, kFailed, kLostStore };

class NodeMeeting {
 public:
  NodeMeeting(const LaunchOptions& options, const RendezvousClient::Options& store);
  ~NodeMeeting();

  // Waits for the machines of the next round. Nothing if the job ended without this machine, or if `is_cancelled` says
  // so. UserError if they do not come in time.
  std::optional<Round> join(const std::function<bool()>& is_cancelled);

  // Of the round that was joined last. Any time, cheap.
  RoundOutcome outcome() const { return outcome_; }

  // This machine's ranks have ended well. The round is over when all have.
  void report_done();
  // A rank has failed here, or is about to be stopped: tells the other machines.
  void report_failed();
  // This machine's ranks have stopped.
  void report_stopped(const std::vector<Failure>& failures);
  // Of all machines, sorted by cause; waits at most that long for the others to stop.
  std::vector<Failure> collect_failures(double patience_seconds);

 private:
  std::string key(const std::string& name) const;
  std::vector<Node> present_nodes();
  std::string missing(const std::vector<Node>& nodes) const;
  std::vector<Node> number_nodes(std::vector<Node> nodes) const;
  std::vector<Node> meet(const std::function<bool()>& is_cancelled);
  bool next_round_comes(const std::function<bool()>& is_cancelled);
  Round take_part(const std::vector<Node>& nodes);
  void watch();
  void stop_watching();

  const LaunchOptions& options_;
  RendezvousClient store_, watched_;
  Node self_;
  int64_t round_ = -1;
  std::vector<Node> nodes_;
  std::atomic<RoundOutcome> outcome_ = RoundOutcome::kRunning;
  std::atomic<bool> leaving_ = false;
  std::thread watcher_;
};

}  // namespace espalier::launch
