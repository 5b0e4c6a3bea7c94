// Attention of a problem that asks for cuDNN (AttentionProblem::backend), as sdpa.h takes it, without copies.
//
// A log-sum-exp is then of the natural exponential function: backward belongs to the same backend.
#pragma once

#include "kernels/internal/attention_problem.h"

namespace espalier::cuda {

void attention_forward_cudnn(const kernels::AttentionProblem& problem);
void attention_backward_cudnn(const kernels::AttentionProblem& problem, const kernels::AttentionGradients& gradients);

}  // namespace espalier::cuda
