// Creates the c10d backends of groups on the CPU: memory that the processes of one machine share, or Gloo.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace espalier::dist {

class SharedMachine;

struct BackendOptions {
  std::chrono::milliseconds timeout = std::chrono::minutes(10);  // of one exchange
  bool one_machine = false;                                      // all ranks are on this machine
  bool shared_memory = true;                                     // where they are; else Gloo
  bool reads_directly = true;  // ranks read each other's memory where the system permits it
  // One process has started all ranks of this machine and outlives them: with Yama only then it is permitted.
  bool have_parent = false;
};

// Called by all `size` ranks of the group; they meet in `store` (with a prefix of their own). A process starts
// exchanges over Gloo from one thread, whatever the group: c10d 2.11 enters each into one recorder without a lock
// (FlightRecorderDetail.hpp, all_pg_status_).
c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store, int64_t rank, int64_t size,
                                            const BackendOptions& options);

// Whether the ranks see each other's memory.
struct MachineMeeting {
  std::shared_ptr<SharedMachine> machine;  // null where some do not
  std::string trouble;                     // why not
};

// Called by all ranks of a run on one machine.
MachineMeeting meet_on_machine(const c10::intrusive_ptr<c10d::Store>& store, int64_t rank, int64_t size,
                               const BackendOptions& options = {});

// Called by the `members` of the group (ranks of the run), of which this process is entry `rank`. Sums are taken in the
// order of the ranks, of half-precision numbers in fp32; ranks that call different collectives get an error that says
// so. An exchange moves on while its process starts another or waits, not while it computes; a message of up to 16 MiB
// does not need its sender any more. Throws std::runtime_error when the process of a member has ended.
c10::intrusive_ptr<c10d::Backend> make_shared_memory(const c10::intrusive_ptr<c10d::Store>& store,
                                                     const std::shared_ptr<SharedMachine>& machine,
                                                     const std::vector<int64_t>& members, int64_t rank,
                                                     const BackendOptions& options);

}  // namespace espalier::dist
