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

  // On `device`, for sequences of up to `longest` positions that are not all alike: row p is position p of a sequence
  // of at most rotary.short_positions(), row short_positions() + p is that of a longer one. Without short_positions()
  // as of().
  const kernels::RotaryTable& of_any(const spec::Rotary& rotary, int64_t longest, at::Device device = at::kCPU) const;

 private:
  mutable kernels::RotaryTable table_;
  mutable int64_t sequence_length_ = 0;
  mutable kernels::RotaryTable table_of_any_;
  mutable int64_t longest_ = 0;
};

}  // namespace espalier::nn
