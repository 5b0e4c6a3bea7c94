// Whose kernels compute attention on a GPU; on the CPU there is one kind.
#pragma once

#include <cstdint>

namespace espalier::spec {

enum class AttentionBackend {
  kFlash,  // ours: every mask, bias and dropout
  kCudnn   // those of NVIDIA's cuDNN, in bf16 and fp16: causal or full, nothing else
};

// Channels of a head that cuDNN takes: multiples of the one, at most the other.
inline constexpr int64_t kCudnnChannelMultiple = 8, kMostCudnnChannels = 128;

}  // namespace espalier::spec
