#include <cuda_runtime_api.h>

#include <voxgrad/core/check.h>
#include <voxgrad/cuda/ptx/tensor_map.h>
#include <voxgrad/cuda/runtime/error.h>
#include <voxgrad/cuda/runtime/guard.h>

namespace vox::cuda::ptx {

namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

/// The driver's function. The runtime finds it, so that nothing links to the driver.
Encode encode_tiled(const char* op) {
  static void* const found = [op] {
    const OutsideCapture outside;
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
    check_cuda(op, cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                                    cudaEnableDefault, &result));
#else
    check_cuda(op, cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &result));
#endif
    check<CudaError>(result == cudaDriverEntryPointSuccess && function, op,
                     ": the CUDA driver has no cuTensorMapEncodeTiled; update it to CUDA 12.0 or later");
    return function;
  }();
  return reinterpret_cast<Encode>(found);
}

CUtensorMapDataType data_type(DType dtype) {
  return dtype == bf16  ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
         : dtype == f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                        : CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
}

}  // namespace

CUtensorMap tensor_map(const char* op, const void* data, DType dtype, const BoxesOfTensor& boxes) {
  cuuint64_t extents[5], pitches[4];  // pitches: bytes, of the axes behind the first
  cuuint32_t spans[5], steps[5];      // spans: a box with its gaps
  auto bytes = static_cast<cuuint64_t>(size_of(dtype));
  for (size_t i = 0; i < 5; ++i) {
    extents[i] = static_cast<cuuint64_t>(boxes.extents[i]);
    steps[i] = static_cast<cuuint32_t>(boxes.step[i]);
    spans[i] = static_cast<cuuint32_t>((boxes.box[i] - 1) * boxes.step[i] + 1);
    bytes *= extents[i];
    if (i < 4) pitches[i] = bytes;
  }
  CUtensorMap map;
  const CUresult code =
      encode_tiled(op)(&map, data_type(dtype), 5, const_cast<void*>(data), extents, pitches, spans, steps,
                       CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                       CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  check<CudaError>(code == CUDA_SUCCESS, op, ": the CUDA driver refused a tensor map (error ",
                   static_cast<int>(code), ')');
  return map;
}

}  // namespace vox::cuda::ptx
