#pragma once

// Failures of CUDA's runtime, which is linked into the program: the linker (--wrap=cudaX) gives calls of
// cudaX to __wrap_cudaX below, and __real_cudaX is CUDA's own. tests/CMakeLists.txt reads the names from this
// file. Calls that free never fail, as in inject.h.

#include <cuda_runtime_api.h>

#include "tests/failures/inject.h"

namespace vox::testing {

inline cudaError_t cuda_code = cudaErrorUnknown;  // what a failing call returns
inline cudaError_t cuda_pending = cudaSuccess;    // what it leaves for cudaGetLastError()

/// What was made and is not freed yet.
struct CudaLive {
  int64_t calls, blocks, pinned, streams, events, captures, graphs, executables, relaxed;
};
inline CudaLive cuda_live;

inline bool cuda_fails(Failing kind = Failing::cuda) {
  if (!fails(kind)) return false;
  cuda_pending = cuda_code;
  return true;
}

}  // namespace vox::testing

#define VOX_WRAP(name, parameters, arguments, fails, live, change) \
  extern "C" decltype(name) __real_##name, __wrap_##name;          \
  extern "C" cudaError_t __wrap_##name parameters {                \
    using namespace vox::testing;                                  \
    if (fails) return cuda_code;                                   \
    const cudaError_t code = __real_##name arguments;              \
    cuda_live.live += change;                                      \
    return code;                                                   \
  }
#define VOX_CALL(name, parameters, arguments) VOX_WRAP(name, parameters, arguments, cuda_fails(), calls, 1)
#define VOX_MAKE(name, live, parameters, arguments) \
  VOX_WRAP(name, parameters, arguments, cuda_fails(), live, code == cudaSuccess)
#define VOX_FREE(name, live, parameters, arguments) VOX_WRAP(name, parameters, arguments, false, live, -1)

VOX_CALL(cudaGetDevice, (int* device), (device))
VOX_CALL(cudaMemPoolCreate, (cudaMemPool_t * pool, const cudaMemPoolProps* properties), (pool, properties))
VOX_CALL(cudaMemPoolSetAttribute, (cudaMemPool_t pool, cudaMemPoolAttr a, void* value), (pool, a, value))
VOX_CALL(cudaDeviceGetAttribute, (int* value, cudaDeviceAttr attribute, int device),
         (value, attribute, device))
VOX_CALL(cudaDeviceSynchronize, (), ())
VOX_CALL(cudaMemGetInfo, (size_t * free, size_t* total), (free, total))
VOX_CALL(cudaMemPoolGetAttribute, (cudaMemPool_t pool, cudaMemPoolAttr a, void* value), (pool, a, value))
VOX_CALL(cudaMemPoolTrimTo, (cudaMemPool_t pool, size_t bytes), (pool, bytes))
VOX_CALL(cudaPointerGetAttributes, (cudaPointerAttributes * a, const void* p), (a, p))
VOX_CALL(cudaMemcpyAsync, (void* to, const void* from, size_t n, cudaMemcpyKind kind, cudaStream_t s),
         (to, from, n, kind, s))
VOX_CALL(cudaMemsetAsync, (void* to, int value, size_t n, cudaStream_t s), (to, value, n, s))
VOX_CALL(cudaFuncGetAttributes, (cudaFuncAttributes * a, const void* f), (a, f))
VOX_CALL(cudaFuncSetAttribute, (const void* f, cudaFuncAttribute a, int value), (f, a, value))
VOX_CALL(cudaOccupancyMaxActiveBlocksPerMultiprocessor, (int* n, const void* f, int threads, size_t shared),
         (n, f, threads, shared))
VOX_CALL(cudaLaunchKernelExC, (const cudaLaunchConfig_t* how, const void* f, void** a), (how, f, a))
#if CUDART_VERSION >= 13000
extern "C" cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t);
VOX_CALL(__cudaLaunchKernel, (cudaKernel_t f, dim3 grid, dim3 block, void** a, size_t shared, cudaStream_t s),
         (f, grid, block, a, shared, s))
VOX_CALL(cudaStreamGetCaptureInfo,
         (cudaStream_t s, cudaStreamCaptureStatus* status, unsigned long long* id, cudaGraph_t* graph,
          const cudaGraphNode_t** nodes, const cudaGraphEdgeData** edges, size_t* count),
         (s, status, id, graph, nodes, edges, count))
#else
VOX_CALL(cudaLaunchKernel, (const void* f, dim3 grid, dim3 block, void** a, size_t shared, cudaStream_t s),
         (f, grid, block, a, shared, s))
VOX_CALL(cudaStreamGetCaptureInfo_v2,
         (cudaStream_t s, cudaStreamCaptureStatus* status, unsigned long long* id, cudaGraph_t* graph,
          const cudaGraphNode_t** nodes, size_t* count),
         (s, status, id, graph, nodes, count))
#endif
VOX_CALL(cudaStreamIsCapturing, (cudaStream_t s, cudaStreamCaptureStatus* status), (s, status))
VOX_CALL(cudaStreamSynchronize, (cudaStream_t s), (s))
VOX_CALL(cudaStreamWaitEvent, (cudaStream_t s, cudaEvent_t event, unsigned flags), (s, event, flags))
VOX_CALL(cudaEventRecord, (cudaEvent_t event, cudaStream_t s), (event, s))
VOX_CALL(cudaEventQuery, (cudaEvent_t event), (event))
VOX_CALL(cudaEventSynchronize, (cudaEvent_t event), (event))
VOX_CALL(cudaGraphLaunch, (cudaGraphExec_t graph, cudaStream_t s), (graph, s))
VOX_CALL(cudaGraphRetainUserObject, (cudaGraph_t graph, cudaUserObject_t object, unsigned n, unsigned flags),
         (graph, object, n, flags))
VOX_CALL(cudaDeviceGraphMemTrim, (int device), (device))

VOX_CALL(cudaUserObjectCreate,
         (cudaUserObject_t * object, void* p, cudaHostFn_t destroy, unsigned n, unsigned flags),
         (object, p, destroy, n, flags))

VOX_WRAP(cudaMallocFromPoolAsync, (void** p, size_t n, cudaMemPool_t pool, cudaStream_t s), (p, n, pool, s),
         cuda_fails() || cuda_fails(Failing::cuda_memory), blocks, code == cudaSuccess)
VOX_FREE(cudaFreeAsync, blocks, (void* p, cudaStream_t s), (p, s))
VOX_MAKE(cudaHostAlloc, pinned, (void** p, size_t n, unsigned flags), (p, n, flags))
VOX_FREE(cudaFreeHost, pinned, (void* p), (p))
VOX_MAKE(cudaStreamCreateWithFlags, streams, (cudaStream_t * s, unsigned flags), (s, flags))
VOX_FREE(cudaStreamDestroy, streams, (cudaStream_t s), (s))
VOX_MAKE(cudaEventCreateWithFlags, events, (cudaEvent_t * event, unsigned flags), (event, flags))
VOX_MAKE(cudaEventCreate, events, (cudaEvent_t * event), (event))
VOX_FREE(cudaEventDestroy, events, (cudaEvent_t event), (event))
VOX_MAKE(cudaGraphInstantiate, executables,
         (cudaGraphExec_t * executable, cudaGraph_t graph, unsigned long long flags),
         (executable, graph, flags))
VOX_FREE(cudaGraphExecDestroy, executables, (cudaGraphExec_t graph), (graph))
VOX_FREE(cudaGraphDestroy, graphs, (cudaGraph_t graph), (graph))
VOX_MAKE(cudaStreamBeginCapture, captures, (cudaStream_t s, cudaStreamCaptureMode mode), (s, mode))

extern "C" {
decltype(cudaStreamEndCapture) __real_cudaStreamEndCapture, __wrap_cudaStreamEndCapture;
cudaError_t __wrap_cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {  // ends it in any case
  const cudaError_t code = __real_cudaStreamEndCapture(stream, graph);
  --vox::testing::cuda_live.captures;
  if (*graph) ++vox::testing::cuda_live.graphs;
  if (!vox::testing::cuda_fails()) return code;
  if (*graph) __wrap_cudaGraphDestroy(*graph);
  *graph = nullptr;
  return vox::testing::cuda_code;
}
decltype(cudaThreadExchangeStreamCaptureMode) __real_cudaThreadExchangeStreamCaptureMode,
    __wrap_cudaThreadExchangeStreamCaptureMode;
cudaError_t __wrap_cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  vox::testing::cuda_live.relaxed = *mode == cudaStreamCaptureModeRelaxed;
  return __real_cudaThreadExchangeStreamCaptureMode(mode);
}
decltype(cudaGetLastError) __real_cudaGetLastError, __wrap_cudaGetLastError;
cudaError_t __wrap_cudaGetLastError() {
  const cudaError_t code = __real_cudaGetLastError(),
                    injected = std::exchange(vox::testing::cuda_pending, cudaSuccess);
  return injected != cudaSuccess ? injected : code;
}
}  // extern "C"
