#include "train/device_timer.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace espalier::train {

size_t DeviceTimer::mark() {
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
  marks_.emplace_back(device_.type(), c10::EventFlag::BACKEND_DEFAULT);  // the other flag measures no time
  marks_.back().record(stream);
  return marks_.size() - 1;
}

void DeviceTimer::finish() {
  if (!marks_.empty()) marks_.back().synchronize();
}

double DeviceTimer::seconds(size_t from, size_t to) const { return 1e-3 * marks_[from].elapsedTime(marks_[to]); }

}  // namespace espalier::train
