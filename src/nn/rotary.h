// Tables of cosines and sines for rotary positions, made once and used by every layer.
#pragma once

#include "kernels/rotary.h"
#include "spec/rotary.h"

namespace espalier::nn {

class RotaryTables {
 public:
  // For sequences of `sequence_length` positions, at [0, sequence_length), on `device`: the table of the last call
  // where that will do, else a new one. One thread.
  const kernels::RotaryTable& of(const spec::Rotary& rotary, int64_t sequence_length,
                                 at::Device device = at::kCPU) const;

 private:
  mutable kernels::RotaryTable table_;
  mutable int64_t sequence_length_ = 0;
};

}  // namespace espalier::nn
