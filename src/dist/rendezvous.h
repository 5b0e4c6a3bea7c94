// Where the ranks of a run meet, whoever started them.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include "launch/environment.h"

namespace c10d {
class Store;
}

namespace espalier::dist {

// Connects to the rendezvous store at the master's address: our own, which `espalier launch` hosts, or else rank 0 from
// here on; under another launcher that hosts one (real torchrun), its c10d TCPStore. Keys carry the number of the
// restart, so a group that was started again does not read what the former one left. Where rank 0 hosts, letting go of
// the rendezvous store waits a moment for the others to do so first. UserError as in launch/rendezvous_client.h.
c10::intrusive_ptr<c10d::Store> connect_rendezvous(const launch::RankEnvironment& place);

}  // namespace espalier::dist
