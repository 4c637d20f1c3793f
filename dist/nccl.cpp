// Collectives on CUDA tensors. The only file that knows NCCL, whose library is loaded when it is first
// needed.
#include <voxgrad/dist/engine.h>

#if VOXGRAD_HAS_NCCL
#include <dlfcn.h>
#include <nccl.h>

#include <cstring>
#include <iterator>

#include <voxgrad/cuda/runtime/launch.h>
#endif

namespace vox::dist::nccl {

#if VOXGRAD_HAS_NCCL

namespace {

/// NCCL's functions. The header gives their types, so a call with wrong arguments does not compile.
struct Library {
  decltype(&ncclGetUniqueId) get_unique_id;
  decltype(&ncclCommInitRankConfig) comm_init;
  decltype(&ncclCommGetAsyncError) get_async_error;
  decltype(&ncclCommAbort) abort;
  decltype(&ncclGetErrorString) get_error_string;
  decltype(&ncclGetLastError) get_last_error;
  decltype(&ncclAllReduce) all_reduce;
  decltype(&ncclBroadcast) broadcast;
  decltype(&ncclAllGather) all_gather;
  decltype(&ncclReduceScatter) reduce_scatter;

  Library() {
    void* const handle = ::dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    check<DistError>(handle != nullptr,
                     "NCCL, which moves CUDA tensors between ranks, cannot be loaded: ", ::dlerror(),
                     " (install libnccl2, or add the folder of libnccl.so.2 to LD_LIBRARY_PATH)");
    find(handle, "ncclGetUniqueId", get_unique_id);
    find(handle, "ncclCommInitRankConfig", comm_init);
    find(handle, "ncclCommGetAsyncError", get_async_error);
    find(handle, "ncclCommAbort", abort);
    find(handle, "ncclGetErrorString", get_error_string);
    find(handle, "ncclGetLastError", get_last_error);
    find(handle, "ncclAllReduce", all_reduce);
    find(handle, "ncclBroadcast", broadcast);
    find(handle, "ncclAllGather", all_gather);
    find(handle, "ncclReduceScatter", reduce_scatter);
  }

  template <class F>
  static void find(void* handle, const char* name, F& function) {
    function = reinterpret_cast<F>(::dlsym(handle, name));
    check<DistError>(function != nullptr, "NCCL: libnccl.so.2 has no ", name,
                     "; voxgrad needs NCCL 2.14 or newer");
  }
};

const Library& library() {
  static const Library library;
  return library;
}

ncclComm_t communicator = nullptr;
int device = -1;  // the GPU of `communicator`

/// Waits while NCCL prepares a call, without waiting for the GPU. Throws DistError.
void settle(const std::string& call, ncclResult_t result) {
  World& w = world("nccl");
  const auto deadline = after(w.timeout);
  while (result == ncclInProgress) {
    w.control->check_failure();
    check<DistError>(Clock::now() < deadline, call, ": NCCL did not start it within ", w.timeout, " s");
    std::this_thread::yield();
    if (const ncclResult_t code = library().get_async_error(communicator, &result); code != ncclSuccess)
      result = code;
  }
  check<DistError>(result == ncclSuccess, call, ": NCCL: ", library().get_error_string(result), ": ",
                   library().get_last_error(nullptr));
}

/// Connects the GPUs of all ranks.
void connect(int index) {
  ncclUniqueId id{};
  std::string bytes;
  if (rank() == 0) {
    settle("NCCL's id", library().get_unique_id(&id));
    bytes.assign(id.internal, sizeof id.internal);
  } else {
    library();  // without NCCL, throws here, before the other ranks wait for this one
  }
  const std::string from_0 = agree("init", "NCCL's init", bytes)[0];
  std::memcpy(id.internal, from_0.data(), sizeof id.internal);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const cuda::DeviceGuard guard("init", index);
  device = index;
  settle("NCCL's init", library().comm_init(&communicator, size(), id, rank(), &config));
}

ncclDataType_t type_of(DType dtype) {
  // i16 and u16 are only moved, so any type of 16 bits serves.
  constexpr ncclDataType_t types[] = {ncclFloat32,  ncclFloat64, ncclInt64,   ncclUint8,   ncclUint8,
                                      ncclBfloat16, ncclFloat16, ncclFloat16, ncclFloat16, ncclInt32};
  static_assert(std::size(types) == static_cast<size_t>(i32) + 1);  // a new dtype needs a type
  return types[static_cast<int>(dtype)];
}

}  // namespace

void start(const Collective& c) {
  const int index = c.input.device().index;
  if (!communicator) connect(index);
  check<DistError>(index == device, c.description(), ": a rank has one GPU, cuda:", device,
                   ", got cuda:", index);
  const cuda::Launch launch("dist", c.output, {&c.input});
  const auto count =
      static_cast<size_t>(c.kind == Collective::Kind::reduce_scatter ? c.output.numel() : c.input.numel());
  const ncclDataType_t type = type_of(c.input.dtype());
  const ncclRedOp_t op = c.reduce == Reduce::sum ? ncclSum : c.reduce == Reduce::max ? ncclMax : ncclMin;
  const void* const in = c.input.impl()->data();
  void* const out = c.output.impl()->data();
  ncclResult_t result = ncclSuccess;
  switch (c.kind) {
    case Collective::Kind::all_reduce:
      result = library().all_reduce(in, out, count, type, op, communicator, launch.stream());
      break;
    case Collective::Kind::broadcast:
      result = library().broadcast(in, out, count, type, c.root, communicator, launch.stream());
      break;
    case Collective::Kind::all_gather:
      result = library().all_gather(in, out, count, type, communicator, launch.stream());
      break;
    case Collective::Kind::reduce_scatter:
      result = library().reduce_scatter(in, out, count, type, op, communicator, launch.stream());
      break;
  }
  settle(c.description(), result);
}

void finish() noexcept {
  if (!communicator) return;
  // Other ranks may still wait for this rank's kernels. If CUDA is shut down already, its work is done, and
  // the errors mean nothing.
  cuda::ignore_error(cudaSetDevice(device));
  cuda::ignore_error(cudaDeviceSynchronize());
}

void abort() noexcept {
  if (communicator) library().abort(communicator);
  communicator = nullptr;
}

#else

void start(const Collective& c) {
  throw DistError(str(c.description(),
                      ": voxgrad was built without NCCL (install libnccl-dev and configure a CUDA "
                      "build again with VOXGRAD_DIST=ON)"));
}
void finish() noexcept {}
void abort() noexcept {}

#endif

}  // namespace vox::dist::nccl
