// Whose kernels compute attention on a GPU; on the CPU there is one kind.
#pragma once

namespace espalier::spec {

enum class AttentionBackend {
  kFlash,  // ours: every mask, bias and dropout
  kCudnn   // those of NVIDIA's cuDNN, in bf16 and fp16: causal or full, nothing else
};

}  // namespace espalier::spec
