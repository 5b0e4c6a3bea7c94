// The noise of kernels/draw_labels.h, for every device.
//
// Plain header.
#pragma once

#include <cmath>
#include <cstdint>

#include "spec/anywhere.h"

namespace espalier::kernels {

// -log(-log(u)), u = (word + 1/2) / 2^32: between -3.2 and 22.9.
ESPALIER_ANYWHERE double gumbel(uint32_t word) { return -log(-log((static_cast<double>(word) + 0.5) * 0x1p-32)); }

}  // namespace espalier::kernels
