// Attention of bf16 and fp16 on tensor cores: attention.cu hands over the problems that fit.
//
// Plain header.
#pragma once

#include "kernels/cuda/launch.h"

namespace espalier::cuda {

// Type, size of heads, and operands whose rows are at multiples of 16 bytes, which is how these kernels copy them.
// `gradients`: nullptr for a forward pass.
bool fits_tensor_cores(const AttentionProblem& problem, const AttentionGradients* gradients);

// row_dots = rowsum(dO O): [b, query heads, num_queries].
void attention_row_dots(const AttentionProblem& problem, const kernels::AttentionOperand& d_result, float* row_dots,
                        Stream stream);

// Each of the files attention_*_bf16.cu and attention_*_fp16.cu has one of these for its type, all for the sake of
// compilers that run side by side.
void attention_forward_bf16(const AttentionProblem& problem, Stream stream);
void attention_forward_fp16(const AttentionProblem& problem, Stream stream);
void attention_key_gradient_bf16(const AttentionProblem& problem, const AttentionGradients& gradients,
                                 const float* row_dots, Stream stream);
void attention_key_gradient_fp16(const AttentionProblem& problem, const AttentionGradients& gradients,
                                 const float* row_dots, Stream stream);
void attention_query_gradient_bf16(const AttentionProblem& problem, const AttentionGradients& gradients,
                                   const float* row_dots, Stream stream);
void attention_query_gradient_fp16(const AttentionProblem& problem, const AttentionGradients& gradients,
                                   const float* row_dots, Stream stream);

}  // namespace espalier::cuda
