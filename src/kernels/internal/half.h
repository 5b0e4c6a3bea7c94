// The compiler's own type of 16-bit floats.
#pragma once

namespace espalier::kernels {

#ifdef __aarch64__
using Half = __fp16;  // GCC 12 does not know _Float16 in C++ there
#else
using Half = _Float16;
#endif

}  // namespace espalier::kernels
