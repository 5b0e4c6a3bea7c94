// The one file that sees Gloo: its headers are Debian's, its code is libtorch's.
#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <csignal>
#include <cstdlib>
#include <map>
#include <memory>

#include "dist/backend.h"

namespace espalier::dist {
namespace {

std::shared_ptr<gloo::transport::Device> make_device(bool one_machine) {
  const char* const interface = std::getenv("GLOO_SOCKET_IFNAME");
  if (interface != nullptr && *interface != 0) return c10d::ProcessGroupGloo::createDeviceForInterface(interface);
  if (one_machine) return c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1");
  return c10d::ProcessGroupGloo::createDefaultDevice();
}

// Gloo writes to connections whose other end may be gone. That is to be an error that names the peer, not a SIGPIPE
// that ends this process as if it were at fault.
void outlive_peers() {
  struct sigaction now = {};
  if (sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store, int64_t rank, int64_t size,
                                            const BackendOptions& options) {
  outlive_peers();
  auto gloo = c10d::ProcessGroupGloo::Options::create(options.timeout);
  // A device is a socket's address and a thread that serves all its connections: one for all groups of the process, in
  // all starts that it lives through.
  static std::map<bool, std::shared_ptr<gloo::transport::Device>> devices;
  auto& device = devices[options.one_machine];
  if (!device) device = make_device(options.one_machine);
  gloo->devices.push_back(device);
  gloo->threads = 2;
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, static_cast<int>(rank), static_cast<int>(size), gloo);
}

}  // namespace espalier::dist
