// A device's backend whose exchanges a DeviceWatch looks at, and which is shut down with the last group that uses it.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <string>

namespace c10d {
class Backend;
}

namespace espalier::dist {

class DeviceWatch;

// The collectives that Group uses, passed on to `inner`. When it goes, `inner` is shut down: all ranks have met in a
// barrier by then. While an error is on its way out it is aborted instead, as its peers may not come.
c10::intrusive_ptr<c10d::Backend> watched(c10::intrusive_ptr<c10d::Backend> inner, std::string group,
                                          std::shared_ptr<DeviceWatch> watch);

}  // namespace espalier::dist
