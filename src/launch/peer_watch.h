// Ends a rank as soon as `espalier launch` knows that another has failed.
//
// A rank may wait for a peer where nothing tells it that the peer is gone: for its part of a checkpoint, or in a
// collective on a GPU. The launcher does know, and says so in the rendezvous store; this thread hears it there and ends
// the process with kLostPeer, without destructors, which might wait for the peer as well. A rank that may be held
// (launch/hold.h) has kSecondsToLeave to notice, in an exchange or at its next micro-batch (lose_peers), unless its
// launcher does not want it any more.
#pragma once

#include <atomic>
#include <memory>
#include <thread>

#include "launch/environment.h"
#include "launch/rendezvous_client.h"

namespace espalier::launch {

class PeerWatch {
 public:
  // Does nothing where no launcher of ours runs.
  explicit PeerWatch(const RankEnvironment& place);
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

 private:
  void watch(const std::string& key);

  bool leaves_in_time() const;

  std::unique_ptr<RendezvousClient> store_;
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

// The store's key that holds how a round of `espalier launch` ended, and its values.
std::string round_over_key(int64_t round);
inline constexpr const char* kRoundDone = "done";
inline constexpr const char* kRoundFailed = "failed";
inline constexpr const char* kRoundRegroups = "regroups";  // all ranks have saved and ended, to start again

}  // namespace espalier::launch
