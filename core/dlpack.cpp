#include <voxgrad/core/cuda.h>
#include <voxgrad/core/cuda_memory.h>
#include <voxgrad/core/dlpack.h>
#include <voxgrad/core/dlpack_abi.h>
#include <voxgrad/core/factories.h>

#include <algorithm>
#include <memory>

namespace vox {

namespace {

// ---- Names and numbers --------------------------------------------------------------------------------

struct DTypeCode {
  DType dtype;
  uint8_t code, bits;
};
constexpr DTypeCode dtype_codes[] = {{f32, kDLFloat, 32},   {f64, kDLFloat, 64}, {bf16, kDLBfloat, 16},
                                     {f16, kDLFloat, 16},   {i64, kDLInt, 64},   {u8, kDLUInt, 8},
                                     {boolean, kDLBool, 8}, {i16, kDLInt, 16},   {u16, kDLUInt, 16},
                                     {i32, kDLInt, 32}};

DLDataType to_code(DType dtype) {
  const auto* found = std::find_if(std::begin(dtype_codes), std::end(dtype_codes),
                                   [&](const DTypeCode& d) { return d.dtype == dtype; });
  check<DTypeError>(found != std::end(dtype_codes), "to_dlpack: corrupt dtype value");
  return {found->code, found->bits, 1};
}

/// "int32", or "float32 in vectors of 4"
std::string name_of(const DLDataType& d) {
  constexpr const char* names[] = {"int", "uint", "float", "opaque", "bfloat", "complex", "bool"};
  std::string name = d.code < std::size(names) ? str(names[d.code], int{d.bits})
                                               : str("code ", int{d.code}, " of ", int{d.bits}, " bits");
  return d.lanes == 1 ? name : str(name, " in vectors of ", d.lanes);
}

DType from_code(const DLDataType& d) {
  const auto* found = std::find_if(
      std::begin(dtype_codes), std::end(dtype_codes),
      [&](const DTypeCode& known) { return d.code == known.code && d.bits == known.bits && d.lanes == 1; });
  check<DTypeError>(
      found != std::end(dtype_codes), "from_dlpack: voxgrad has no dtype ", name_of(d),
      "; allowed are float32, float64, bfloat16, float16, int64, int32, int16, uint16, uint8 and "
      "bool8");
  return found->dtype;
}

DLDevice to_code(Device device) {
  return {device.is_cpu() ? kDLCPU : kDLCUDA, static_cast<int32_t>(device.index)};
}

std::string name_of(const DLDevice& d) {
  // By DLDeviceType.
  constexpr const char* names[] = {"?",       "cpu",          "cuda",   "cuda_host", "opencl",  "?",
                                   "?",       "vulkan",       "metal",  "vpi",       "rocm",    "rocm_host",
                                   "ext_dev", "cuda_managed", "oneapi", "webgpu",    "hexagon", "maia"};
  const auto type = static_cast<size_t>(d.device_type);
  return type < std::size(names) && names[type][0] != '?' ? names[type] : str("type ", d.device_type);
}

Device from_code(const DLDevice& d) {
  if (d.device_type == kDLCUDA) return Device::cuda(d.device_id);
  check<DeviceError>(d.device_type == kDLCPU || d.device_type == kDLCUDAHost,
                     "from_dlpack: voxgrad has no device ", name_of(d),
                     "; allowed are cpu, cuda and cuda_host");
  return Device::cpu();
}

// ---- Lending ------------------------------------------------------------------------------------------

/// What the deleter of a lent tensor deletes.
template <class Managed>
struct Loan {
  Tensor tensor;
  Shape shape, strides;
  Managed managed{};
};

template <class Managed>
Managed* lend(const char* function, const Tensor& t) {
  detail::check_defined(function, "t", t);
  check<GradError>(
      !t.requires_grad(), function,
      ": the tensor requires grad, and the tape would not see the borrower's writes; lend detach()");
  auto loan = std::make_unique<Loan<Managed>>(Loan<Managed>{t, t.shape(), t.strides()});
  Managed& managed = loan->managed;
  managed.dl_tensor = {t.impl()->data(),
                       to_code(t.device()),
                       static_cast<int32_t>(t.rank()),
                       to_code(t.dtype()),
                       loan->shape.begin(),
                       loan->strides.begin(),
                       0};
  managed.deleter = [](Managed* self) { delete static_cast<Loan<Managed>*>(self->manager_ctx); };
  if (t.device().is_cuda()) cuda::note_use(t.impl()->storage->data(), t.device().index);
  managed.manager_ctx = loan.get();
  return &loan.release()->managed;
}

// ---- Borrowing ----------------------------------------------------------------------------------------

/// Waits for the work that may still use memory of `device`.
void wait_for_work(Device device) noexcept {
  if (device.is_cpu()) return;
  try {
    cuda::synchronize(device);
  } catch (const Error&) {
    // A capture is running, which only records its work; or the context has failed, which the next op
    // reports.
  }
}

template <class Managed>
Tensor borrow(Managed* managed, bool read_only) {
  const DLTensor& d = managed->dl_tensor;
  const DType dtype = from_code(d.dtype);
  const Device device = from_code(d.device);
  check<ShapeError>(d.ndim >= 0 && d.ndim <= max_rank, "from_dlpack: a tensor has 0 to ", max_rank,
                    " dimensions, got ", d.ndim);
  check<ValueError>(d.ndim == 0 || d.shape != nullptr, "from_dlpack: the pointer to the sizes is null");
  const Shape shape(d.shape, d.shape + d.ndim);
  const int64_t numel = checked_numel("from_dlpack", shape);
  Shape strides = contiguous_strides(shape);
  for (int i = 0; i < d.ndim && d.strides != nullptr; ++i) {
    if (numel > 1 && shape[i] > 1) strides[i] = d.strides[i];  // unused strides may be anything
  }
  void* data = d.data == nullptr ? nullptr : static_cast<char*>(d.data) + d.byte_offset;
  return detail::from_blob(
      data, dtype, shape, strides, device,
      [managed, device](void*) {
        wait_for_work(device);
        if (managed->deleter) managed->deleter(managed);
      },
      "from_dlpack", read_only);
}

}  // namespace

DLManagedTensor* to_dlpack(const Tensor& t) {
  detail::check_defined("to_dlpack", "t", t);
  check<ValueError>(
      !t.impl()->storage->read_only(),
      "to_dlpack: the memory is read-only, which only to_dlpack_versioned can tell the borrower; "
      "lend a clone()");
  return lend<DLManagedTensor>("to_dlpack", t);
}

DLManagedTensorVersioned* to_dlpack_versioned(const Tensor& t) {
  auto* managed = lend<DLManagedTensorVersioned>("to_dlpack_versioned", t);
  managed->version = {1, 1};
  managed->flags = t.impl()->storage->read_only() ? DLPACK_FLAG_BITMASK_READ_ONLY : 0;
  return managed;
}

Tensor from_dlpack(DLManagedTensor* managed) {
  check<ValueError>(managed != nullptr, "from_dlpack: the pointer is null");
  return borrow(managed, false);
}

Tensor from_dlpack(DLManagedTensorVersioned* managed) {
  check<ValueError>(managed != nullptr, "from_dlpack: the pointer is null");
  check<ValueError>(managed->version.major == 1, "from_dlpack: voxgrad reads DLPack 1.x, got version ",
                    managed->version.major, '.', managed->version.minor);
  return borrow(managed, (managed->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0);
}

}  // namespace vox
