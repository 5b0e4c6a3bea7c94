// Time of work on a device, by events in the queue of each thread's current stream.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <deque>

#include "base/work_profile.h"

namespace espalier::train {

// Where all threads that mark have the same current stream, as they have unless they ask for another. A mark costs a
// few microseconds of the host.
class DeviceTimer : public WorkProfile::Timer {
 public:
  explicit DeviceTimer(c10::Device device) : device_(device) {}
  size_t mark() override;
  void finish() override;
  double seconds(size_t from, size_t to) const override;
  void clear() override { marks_.clear(); }

 private:
  c10::Device device_;
  std::deque<c10::Event> marks_;
};

}  // namespace espalier::train
