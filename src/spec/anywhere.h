// ESPALIER_ANYWHERE marks functions that the GPU's kernels call as well as the host.
#pragma once

#ifdef __CUDACC__
#define ESPALIER_ANYWHERE __host__ __device__ inline
#else
#define ESPALIER_ANYWHERE inline
#endif
