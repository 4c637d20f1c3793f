#pragma once

#include "docs/exercises/ladder/layer.h"

// A file with a kernel of exercise 12 or 13 defines, in namespace exercise,
//
//     constexpr int threads, blocks_x, blocks_y;
//     __global__ void conv_transpose3d(const T* input, const T* weight, float* output);
//
// where T is float or half, and blockIdx.z is the volume, with input of shape (volumes, in_channels, cells)
// and weight of shape (in_channels, rows). Another compiler than nvcc gets an emulation of what such kernels
// use. The threads of a block are threads of the CPU there (emulated.cpp).
#ifdef __CUDACC__
#include <cuda_fp16.h>
#include <mma.h>
#else
#include <voxgrad/core/half.h>

#define __global__
#define __shared__ static  // blocks run one after another

using half = vox::float16;
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct Index3 {
  int x, y, z;
};
inline thread_local Index3 threadIdx, blockIdx;
void __syncthreads();
void __syncwarp();

namespace nvcuda::wmma {

enum layout_t { mem_row_major, mem_col_major };
using row_major = std::integral_constant<layout_t, mem_row_major>;
using col_major = std::integral_constant<layout_t, mem_col_major>;
struct matrix_a;
struct matrix_b;
struct accumulator;

/// Lane 0 of a warp holds the whole matrix and does all the work.
template <class Use, int M, int N, int K, class T, class Layout = row_major>
struct fragment {
  static_assert(M == 16 && N == 16 && K == 16, "this emulation has 16 x 16 x 16 only");
  float element[16][16];  // float has every value of half
};

template <class F>
void each_element(F f) {
  for (int i = 0; i < 256 && threadIdx.x % 32 == 0; ++i) f(i / 16, i % 16);
}
template <class Fragment, class T>
void fill_fragment(Fragment& f, T value) {
  each_element([&](int i, int j) { f.element[i][j] = value; });
}
template <class Use, class T, class Layout>
void load_matrix_sync(fragment<Use, 16, 16, 16, T, Layout>& f, const T* p, int stride) {
  each_element([&](int i, int j) { f.element[i][j] = p[Layout::value ? j * stride + i : i * stride + j]; });
}
template <class A, class B, class C>
void mma_sync(C& d, const A& a, const B& b, const C& c) {
  each_element([&](int i, int j) {
    float sum = c.element[i][j];
    for (int k = 0; k < 16; ++k) sum += a.element[i][k] * b.element[k][j];
    d.element[i][j] = sum;
  });
}
template <class C>
void store_matrix_sync(float* p, const C& f, int stride, layout_t layout) {
  each_element([&](int i, int j) { p[layout ? j * stride + i : i * stride + j] = f.element[i][j]; });
}

}  // namespace nvcuda::wmma
#endif
