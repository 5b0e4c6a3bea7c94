// sdpa.h of a build without cuDNN's headers (cmake/cuda_plugin.cmake chooses).
#include "base/error.h"
#include "kernels/cuda/sdpa.h"

namespace espalier::cuda {

const char* why_no_sdpa() {
  return "the CUDA part of this build was made without the headers of cuDNN or of its frontend; 'scripts/setup --cuda' "
         "installs them and builds it again";
}

void sdpa_forward(const Sdpa&) { ESPALIER_CHECK(false, why_no_sdpa()); }
void sdpa_backward(const Sdpa&, const SdpaGradients&) { ESPALIER_CHECK(false, why_no_sdpa()); }

}  // namespace espalier::cuda
