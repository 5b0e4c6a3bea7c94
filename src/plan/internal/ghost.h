// Tensors that have nothing but a size: running a model's text with them counts what it would hold.
#pragma once

#include <algorithm>
#include <memory>

namespace espalier::plan::internal {

struct ByteCount {
  double live = 0, peak = 0;
  void take(double bytes) {
    live += bytes;
    peak = std::max(peak, live);
  }
};

// Counted from its making until the last reference to it goes.
class GhostTensor {
 public:
  GhostTensor(ByteCount& count, double bytes) : count_(count), bytes_(bytes) { count_.take(bytes); }
  ~GhostTensor() { count_.live -= bytes_; }
  GhostTensor(const GhostTensor&) = delete;
  GhostTensor& operator=(const GhostTensor&) = delete;
  double bytes() const { return bytes_; }

 private:
  ByteCount& count_;
  double bytes_;
};

using Ghost = std::shared_ptr<const GhostTensor>;

}  // namespace espalier::plan::internal
