// Which words of the generator drop an element: one rule for every kernel and device.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace espalier::kernels {

// A word is dropped where it is below this: word < probability * 2^32 for an integer word means word < the next
// integer. At most the largest word, which a probability of nearly 1 would pass.
inline uint32_t drop_threshold(double probability) {
  return static_cast<uint32_t>(
      std::min(std::ceil(probability * 0x1p32), static_cast<double>(std::numeric_limits<uint32_t>::max())));
}

}  // namespace espalier::kernels
