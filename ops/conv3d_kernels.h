#pragma once

#include <voxgrad/core/tensor.h>
#include <voxgrad/ops/conv3d_geometry.h>
#include <voxgrad/ops/precision.h>

// The kernels of the conv3d family: the same entries on both devices. Inputs are contiguous tensors of one
// floating dtype and device, with the geometry's shapes; outputs are allocated by the caller and wholly
// overwritten. An undefined bias means none. The same bits on every run, for any number of threads. The
// precision concerns f32 on CUDA, where bf16 and f16 are summed in f32 (the CPU gets those by in_f32 only).

namespace vox::cpu {

/// small = bias + sum over bc, k of big * weight.
void conv3d(const Tensor& big, const Tensor& weight, const Tensor& bias, Tensor& small, Conv3dGeometry g,
            Float32Precision precision);
/// big = bias + sum over sc, k of small * weight.
void conv_transpose3d(const Tensor& small, const Tensor& weight, const Tensor& bias, Tensor& big,
                      Conv3dGeometry g, Float32Precision precision);
/// dweight = sum over n, i of small * big; and, if dbias is defined, dbias = sum over n, cells of the grid
/// `bias_of`, whose channels it has.
void conv3d_weight_grad(const Tensor& big, const Tensor& small, Tensor& dweight, Tensor& dbias, Grid bias_of,
                        Conv3dGeometry g, Float32Precision precision);

// The same by the definition alone (ops/cpu/conv3d/direct.cpp): the oracle of the kernels above, and what
// they fall back to.
void conv3d_direct(const Tensor& big, const Tensor& weight, const Tensor& bias, Tensor& small,
                   Conv3dGeometry g);
void conv_transpose3d_direct(const Tensor& small, const Tensor& weight, const Tensor& bias, Tensor& big,
                             Conv3dGeometry g);
void conv3d_weight_grad_direct(const Tensor& big, const Tensor& small, Tensor& dweight, Conv3dGeometry g);

}  // namespace vox::cpu

namespace vox::cuda {

void conv3d(const Tensor& big, const Tensor& weight, const Tensor& bias, Tensor& small, Conv3dGeometry g,
            Float32Precision precision);
void conv_transpose3d(const Tensor& small, const Tensor& weight, const Tensor& bias, Tensor& big,
                      Conv3dGeometry g, Float32Precision precision);
void conv3d_weight_grad(const Tensor& big, const Tensor& small, Tensor& dweight, Tensor& dbias, Grid bias_of,
                        Conv3dGeometry g, Float32Precision precision);

}  // namespace vox::cuda
