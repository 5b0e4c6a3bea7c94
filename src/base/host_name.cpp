#include "base/host_name.h"

#include <netdb.h>
#include <unistd.h>

#include <memory>

namespace espalier {

std::string host_name() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

std::string full_host_name() {
  const std::string name = host_name();
  addrinfo hints = {};
  hints.ai_flags = AI_CANONNAME;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(name.c_str(), nullptr, &hints, &found) != 0) return name;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  const std::string full = found->ai_canonname == nullptr ? "" : found->ai_canonname;
  return full.find('.') == std::string::npos || full == "localhost.localdomain" ? name : full;
}

}  // namespace espalier
