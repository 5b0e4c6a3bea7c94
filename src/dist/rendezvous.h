// Where the ranks of a run meet, whoever started them.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <functional>
#include <stdexcept>

#include "launch/environment.h"

namespace c10d {
class Store;
}

namespace espalier::dist {

// Connects to the rendezvous store at the master's address: our own, which `espalier launch` hosts, or else rank 0 from
// here on; under another launcher that hosts one (real torchrun), its c10d TCPStore. Keys carry the number of the
// restart, so a group that was started again does not read what the former one left. Where rank 0 hosts, letting go of
// the rendezvous store waits a moment for the others to do so first. UserError as in launch/rendezvous_client.h.
// A rank that finds nobody there says so (on stderr) and tries again for five minutes; `stopped` is asked between
// tries. Throws StoppedBeforeStart when it answers true.
c10::intrusive_ptr<c10d::Store> connect_rendezvous(const launch::RankEnvironment& place,
                                                   const std::function<bool()>& stopped = {});

// Ends the ranks where one was asked to stop before all of them were there; nothing has begun. what() names who was.
struct StoppedBeforeStart : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Assembly {
  int64_t rank = 0, num_ranks = 1;
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  std::function<bool()> stopped = {};  // asked again and again
};

// Called by all ranks: returns when all have arrived. The first rank says for whom it waits. Either all return or none:
// where one was asked to stop all of them throw StoppedBeforeStart, and where not all come within `timeout` a UserError
// (kLostPeer) that names who did not.
void assemble(c10d::Store& store, const Assembly& assembly);

}  // namespace espalier::dist
