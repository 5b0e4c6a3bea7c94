// How a group exchanges tensors that are on a device: by a second c10d backend, which the device's plugin makes.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace espalier::dist {

// Called by all `size` ranks of the group; they meet in `store` (with a prefix of their own). `timeout`: of one
// exchange.
using MakeDeviceBackend = c10::intrusive_ptr<c10d::Backend> (*)(const c10::intrusive_ptr<c10d::Store>& store,
                                                                int64_t rank, int64_t size,
                                                                std::chrono::milliseconds timeout);

}  // namespace espalier::dist
