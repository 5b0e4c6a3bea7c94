// A device's backend for messages between two ranks, without a device: as NCCL's, and less kind.
//
// What is begun is done by a thread, one after another, as on a stream: a message stays before those that follow it
// until its receiver has begun to receive. The receiver's tensor holds NaN until it has waited. Only broadcasts from
// rank 0 of two.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace espalier::test {

// dist::MakeDeviceBackend of CPU tensors.
c10::intrusive_ptr<c10d::Backend> make_ordered_line(const c10::intrusive_ptr<c10d::Store>& store, int64_t rank,
                                                    int64_t size, std::chrono::milliseconds timeout);

}  // namespace espalier::test
