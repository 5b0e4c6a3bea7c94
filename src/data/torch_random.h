// torch's CPU generator, as far as Megatron's cyclic sampler draws from it.
#pragma once

#include <cstdint>
#include <vector>

namespace espalier::data {

// torch.randperm(size, generator=torch.Generator().manual_seed(seed)).
std::vector<int64_t> torch_randperm(int64_t size, uint64_t seed);

}  // namespace espalier::data
