// Collectives as steps of a forward pass, each with the backward that belongs to it (Shoeybi et al. 2019; Korthikanti
// et al. 2022 for the sequence-parallel ones). All ranks of the group call; a group of one returns its argument.
//
// Legend: s sequence, b micro-batch, n ranks of the group.
#pragma once

#include <ATen/core/Tensor.h>

#include "dist/group.h"

namespace espalier::dist {

// Forward: identity. Backward: sum over ranks. (Input of a column-parallel layer.)
at::Tensor copy_to_ranks(const at::Tensor& x, const Group& group);
// Forward: sum over ranks. Backward: identity. (Output of a row-parallel layer; a loss of which ranks hold parts.)
at::Tensor sum_over_ranks(const at::Tensor& x, const Group& group);

// [s/n, ...] -> [s, ...]. Backward: sum over ranks, each keeps its rows.
at::Tensor gather_sequence(const at::Tensor& x, const Group& group);
// [s, ...] -> [s/n, ...] of the sum over ranks. Backward: gather.
at::Tensor sum_and_split_sequence(const at::Tensor& x, const Group& group);

// [s/n, b, heads] -> [s, b, heads/n] and back: every rank trades its part of the sequence in all heads for the whole
// sequence in some heads (Jacobs et al. 2023, DeepSpeed-Ulysses). `heads` stands for heads * width of one head.
at::Tensor sequence_to_heads(const at::Tensor& x, const Group& group);
at::Tensor heads_to_sequence(const at::Tensor& x, const Group& group);

}  // namespace espalier::dist
