// Which elements of a list of tensors a block has.
#pragma once

#include "kernels/cuda/elements.cuh"

namespace espalier::cuda {

struct ListPlace {
  int64_t item, begin;  // elements begin .. begin + kListed - 1 of that tensor, as far as it goes

  template <class Item>
  __device__ explicit ListPlace(const List<Item>& list) {
    int64_t low = 0;
    for (int64_t high = list.count; high - low > 1;) {
      const int64_t middle = (low + high) / 2;
      if (list.first_blocks[middle] <= blockIdx.x)
        low = middle;
      else
        high = middle;
    }
    item = low;
    begin = (blockIdx.x - list.first_blocks[low]) * kListed;
  }
};

}  // namespace espalier::cuda
