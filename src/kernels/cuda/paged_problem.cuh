// Attention to keys and values in pages, as its kernels take it.
#pragma once

#include "kernels/cuda/elements.cuh"

namespace espalier::cuda {

struct PagedProblem {
  kernels::PagedAttention args;
  kernels::DeviceTokens tokens;
  int page_bits;  // pages have 2^page_bits tokens

  __device__ const int32_t* pages_of(int64_t token) const {
    return tokens.pages + tokens.sequences[token] * tokens.pages_of_sequence;
  }
  // Where the key, or the value, of a position is among those of all pages.
  __device__ int64_t place(const int32_t* pages, int position, int64_t group) const {
    const int64_t page = pages[position >> page_bits];
    return (((page * args.groups + group) << page_bits) + (position & ((1 << page_bits) - 1))) * args.head_size;
  }
};

inline PagedProblem paged_problem(const kernels::PagedAttention& args, const kernels::DeviceTokens& tokens) {
  PagedProblem problem{args, tokens, 0};
  while (int64_t{1} << problem.page_bits < args.page_tokens) ++problem.page_bits;
  ESPALIER_CHECK(int64_t{1} << problem.page_bits == args.page_tokens, "pages of ", args.page_tokens, " tokens");
  return problem;
}

// The tokens in tiles, on tensor cores (paged_tiles.cuh). A file for each type, for the sake of compilers that run side
// by side.
void paged_tiles_bf16(const AttentionProblem& as_rows, const PagedProblem& problem, Stream stream);
void paged_tiles_fp16(const AttentionProblem& as_rows, const PagedProblem& problem, Stream stream);

}  // namespace espalier::cuda
