// This machine's name.
#pragma once

#include <string>

namespace espalier {

std::string host_name();       // as the kernel has it
std::string full_host_name();  // with the domain, where the resolver knows one (Python's socket.getfqdn)

}  // namespace espalier
