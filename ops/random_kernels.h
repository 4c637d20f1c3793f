#pragma once

#include <cstdint>

#include <voxgrad/core/generator.h>
#include <voxgrad/core/tensor.h>

/// Kernels of rand, randn and randint: fill a dense `output` from the place `at` of a stream.
namespace vox::cpu {
void rand(const Tensor& output, GeneratorState at);   ///< floating dtypes
void randn(const Tensor& output, GeneratorState at);  ///< floating dtypes
/// low + [0, range), where range = 0 is not allowed and low + range - 1 fits the dtype.
void randint(const Tensor& output, GeneratorState at, int64_t low, uint64_t range);
}  // namespace vox::cpu

namespace vox::cuda {
void rand(const Tensor& output, GeneratorState at);
void randn(const Tensor& output, GeneratorState at);
void randint(const Tensor& output, GeneratorState at, int64_t low, uint64_t range);
}  // namespace vox::cuda
