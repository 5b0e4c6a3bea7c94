#include "nn/rotary.h"

#include <ATen/ATen.h>

#include "spec/rotary.h"

namespace espalier::nn {

namespace {

// Of positions [0, num_positions) in a sequence of `sequence_length`.
kernels::RotaryTable new_table(const spec::Rotary& rotary, int64_t num_positions, int64_t sequence_length) {
  const spec::RotaryAngles angles = spec::rotary_angles(rotary, sequence_length);
  const auto pairs = static_cast<int64_t>(angles.frequencies.size());
  // The angles are rounded to fp32, as models are trained with; their cosines are taken from that.
  const at::Tensor frequencies = at::empty({pairs}, at::kFloat);
  std::copy(angles.frequencies.begin(), angles.frequencies.end(), frequencies.data_ptr<float>());
  const at::Tensor turned = at::outer(at::arange(num_positions, at::kFloat), frequencies).to(at::kDouble);
  return {.cosine = (turned.cos() * angles.attention_factor).to(at::kFloat),
          .sine = (turned.sin() * angles.attention_factor).to(at::kFloat)};
}

}  // namespace

const kernels::RotaryTable& RotaryTables::of(const spec::Rotary& rotary, int64_t sequence_length,
                                             at::Device device) const {
  const bool will_do =
      sequence_length == sequence_length_ || (sequence_length < sequence_length_ && rotary.short_positions() == 0);
  if (will_do && table_.cosine.device() == device) return table_;
  const kernels::RotaryTable table = new_table(rotary, sequence_length, sequence_length);
  table_ = {.cosine = table.cosine.to(device), .sine = table.sine.to(device)};
  sequence_length_ = sequence_length;
  return table_;
}

const kernels::RotaryTable& RotaryTables::of_any(const spec::Rotary& rotary, int64_t longest, at::Device device) const {
  const int64_t short_positions = rotary.short_positions();
  if (short_positions == 0) return of(rotary, longest, device);
  if (longest_ == longest && table_of_any_.cosine.device() == device) return table_of_any_;
  kernels::RotaryTable table = new_table(rotary, short_positions, short_positions);
  if (longest > short_positions) {
    const kernels::RotaryTable of_long = new_table(rotary, longest, longest);
    table = {.cosine = at::cat({table.cosine, of_long.cosine}), .sine = at::cat({table.sine, of_long.sine})};
  }
  table_of_any_ = {.cosine = table.cosine.to(device), .sine = table.sine.to(device)};
  longest_ = longest;
  return table_of_any_;
}

}  // namespace espalier::nn
