#include "nn/rotary.h"

#include <ATen/ATen.h>

#include "spec/rotary.h"

namespace espalier::nn {

const kernels::RotaryTable& RotaryTables::of(const spec::Rotary& rotary, int64_t sequence_length,
                                             at::Device device) const {
  const bool depends_on_length = rotary.scaling.kind == spec::RopeScaling::Kind::kLongRope;
  const bool will_do =
      sequence_length == sequence_length_ || (sequence_length < sequence_length_ && !depends_on_length);
  if (will_do && table_.cosine.device() == device) return table_;
  const spec::RotaryAngles angles = spec::rotary_angles(rotary, sequence_length);
  const auto pairs = static_cast<int64_t>(angles.frequencies.size());
  // The angles are rounded to fp32, as models are trained with; their cosines are taken from that.
  const at::Tensor frequencies = at::empty({pairs}, at::kFloat);
  std::copy(angles.frequencies.begin(), angles.frequencies.end(), frequencies.data_ptr<float>());
  const at::Tensor turned = at::outer(at::arange(sequence_length, at::kFloat), frequencies).to(at::kDouble);
  table_.cosine = (turned.cos() * angles.attention_factor).to(at::kFloat).to(device);
  table_.sine = (turned.sin() * angles.attention_factor).to(at::kFloat).to(device);
  sequence_length_ = sequence_length;
  return table_;
}

}  // namespace espalier::nn
