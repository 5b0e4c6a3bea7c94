// espalier doctor --nodes: the machines of a job compared with each other, by a process on each.
#pragma once

#include <string>
#include <vector>

namespace espalier {

struct NodesOptions {
  double seconds_each = 2;
  std::string min_free;
};

// Prints on the first machine; the exit code is 0 once all were measured, whatever was found.
int doctor_nodes(const std::vector<std::string>& folders, const NodesOptions& options, bool json);

}  // namespace espalier
