// Creates the c10d backends of groups: Gloo on the CPU.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace espalier::dist {

struct BackendOptions {
  std::chrono::milliseconds timeout = std::chrono::minutes(10);  // of one exchange
  bool loopback = false;  // all ranks are on this machine
};

// Called by all `size` ranks of the group; they meet in `store` (with a prefix of their own).
c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store, int64_t rank, int64_t size,
                                            const BackendOptions& options);

}  // namespace espalier::dist
