// Rotary position embedding (Su et al., 2021): pairs of channels of every query and key head turned by an angle that
// grows with the position, so that a score depends on the distance between query and key.
//
// Channel pair i of a head, i < rotary_size / 2, is (2i, 2i + 1) if interleaved (GPT-J), else
// (i, i + rotary_size / 2) (GPT-NeoX, Llama). Channels from rotary_size on are not turned.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "kernels/heads.h"

namespace espalier::kernels {

// Cosines and sines of the angle of (position, pair), [max positions, rotary_size / 2] fp32, contiguous; a factor that
// belongs to attention scores (YaRN) is multiplied in by whoever makes the table.
struct RotaryTable {
  at::Tensor cosine, sine;
};

// qkv: [s, b, heads.columns(head_size)], compute type, contiguous; positions: [b, s] int64, each a row of the table.
// A copy of qkv with its queries and keys turned, in fp32 and rounded once; values as they are.
// Keeps for backward: positions.
at::Tensor rotary(const at::Tensor& qkv, const RotaryTable& table, const at::Tensor& positions, Heads heads,
                  int64_t head_size, bool interleaved);

}  // namespace espalier::kernels
