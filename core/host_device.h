#pragma once

/// Marks a function that both the host compiler and nvcc compile, so that CPU and CUDA kernels share its
/// code.
#ifdef __CUDACC__
#define VOX_HOST_DEVICE __host__ __device__
#else
#define VOX_HOST_DEVICE
#endif
