#include <voxgrad/autograd/meta.h>
#include <voxgrad/core/cuda_memory.h>
#include <voxgrad/core/tensor.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

namespace vox {

TensorImpl::TensorImpl(std::shared_ptr<Storage> storage_, int64_t offset_, Shape shape_, Shape strides_,
                       DType dtype_)
    : storage(std::move(storage_)),
      offset(offset_),
      shape(shape_),
      strides(strides_),
      numel(checked_numel("Tensor", shape_)),
      dtype(dtype_) {}

TensorImpl::~TensorImpl() = default;

Tensor empty(const Shape& shape, TensorOptions options) { return detail::empty_for("empty", shape, options); }

int64_t detail::checked_bytes(const char* function, const Shape& shape, DType dtype) {
  const int64_t numel = checked_numel(function, shape);
  check<ShapeError>(is_countable(shape, size_of(dtype)), function,
                    ": a tensor has at most 2^63 - 1 bytes, got shape ", shape, " of ", dtype);
  return numel * size_of(dtype);
}

Tensor detail::empty_for(const char* function, const Shape& shape, TensorOptions options) {
  const int64_t bytes = checked_bytes(function, shape, options.dtype);
  check_device(function, options.device);
  std::shared_ptr<Storage> storage;
  try {
    storage = Storage::allocate(bytes, options.device);
  } catch (const OutOfMemoryError& error) {
    throw OutOfMemoryError(str(function, ": no memory for a tensor of shape ", shape, " of ", options.dtype,
                               ": ", error.what()));
  }
  return Tensor(
      std::make_shared<TensorImpl>(std::move(storage), 0, shape, contiguous_strides(shape), options.dtype));
}

const TensorImpl& Tensor::checked(const char* function) const {
  if (!defined()) [[unlikely]]
    throw ValueError(str(function, ": the tensor is undefined", detail::why_undefined(*this)));
  return *impl_;
}

const Shape& Tensor::shape() const { return checked("shape").shape; }
const Shape& Tensor::strides() const { return checked("strides").strides; }
int64_t Tensor::rank() const { return checked("rank").shape.rank(); }
int64_t Tensor::size(Int dim) const {
  const Shape& s = checked("size").shape;
  return s[normalize_dim("size", dim, s.rank())];
}
int64_t Tensor::numel() const { return checked("numel").numel; }
DType Tensor::dtype() const { return checked("dtype").dtype; }
Device Tensor::device() const { return checked("device").storage->device(); }

bool Tensor::is_contiguous() const {
  const TensorImpl& t = checked("is_contiguous");
  if (t.numel == 0) return true;
  int64_t step = 1;
  for (int64_t i = t.shape.rank() - 1; i >= 0; --i) {
    if (t.shape[i] != 1 && t.strides[i] != step) return false;
    step *= t.shape[i];
  }
  return true;
}

const void* Tensor::checked_data(const char* function, DType dtype) const {
  const TensorImpl& t = checked(function);
  check<DTypeError>(t.dtype == dtype, function, ": asked for elements of dtype ", dtype,
                    ", the tensor holds ", t.dtype, " (convert with to(dtype) first)");
  return t.data();
}

void* Tensor::checked_mutable_data(DType dtype) {
  void* data = const_cast<void*>(checked_data("mutable_data", dtype));
  detail::begin_in_place("mutable_data", *this);
  return data;
}

template <class T>
std::vector<T> Tensor::elements() const {
  checked_data("to_vector", dtype_of<T>());
  try {
    const Tensor dense = detach().contiguous().to(Device::cpu());
    const T* first = detail::ptr<T>(dense);
    return std::vector<T>(first, first + dense.numel());
  } catch (const OutOfMemoryError& error) {
    throw OutOfMemoryError(str("to_vector: ", error.what()));
  } catch (const std::bad_alloc&) {
    throw OutOfMemoryError(str("to_vector: no memory for a std::vector of the ", numel(),
                               " elements of shape ", shape(), " of ", dtype()));
  }
}

Element Tensor::element() const {
  checked("item");
  check<ShapeError>(numel() == 1, "item: needs exactly one element, got shape ", shape());
  const Tensor host = detach().to(Device::cpu());
  return visit_storage(dtype(), [&](auto type) { return Element(*detail::ptr<decltype(type)>(host)); });
}

int64_t Tensor::whole_element(int64_t lowest, int64_t highest) const {
  const Scalar value = element();
  const double whole = std::trunc(value.as_real());
  const bool counts = value.is_integer() || (whole >= -0x1p63 && whole < 0x1p63);  // false for NaN
  const int64_t i = value.is_integer() ? value.as_integer() : counts ? static_cast<int64_t>(whole) : 0;
  check<ValueError>(counts && i >= lowest && i <= highest, "item: the element is ", value.as_real(),
                    "; the type asked for holds ", lowest, " to ", highest);
  return i;
}

double Tensor::item() const {
  const DType dtype = checked("item").dtype;
  check<DTypeError>(is_floating(dtype), "item: the tensor holds ", dtype,
                    "; item() is for floating dtypes, write item<int64_t>() or item<bool>()");
  return element().as_real();
}

template std::vector<float> Tensor::elements() const;
template std::vector<double> Tensor::elements() const;
template std::vector<int64_t> Tensor::elements() const;
template std::vector<uint8_t> Tensor::elements() const;
template std::vector<bool> Tensor::elements() const;
template std::vector<bfloat16> Tensor::elements() const;
template std::vector<float16> Tensor::elements() const;
template std::vector<int16_t> Tensor::elements() const;
template std::vector<uint16_t> Tensor::elements() const;
template std::vector<int32_t> Tensor::elements() const;

namespace detail {

Tensor alias(const Tensor& t, int64_t offset, const Shape& shape, const Shape& strides) {
  return Tensor(std::make_shared<TensorImpl>(t.impl()->storage, offset, shape, strides, t.dtype()));
}

namespace {
/// The deleter of the null pointer inside an undefined tensor that stands for a missing gradient. It holds
/// the name of the tensor that has no gradient, for errors.
struct MissingGradient {
  std::string name;
  Shape shape;
  const char* why;
  void operator()(TensorImpl*) const {}
};
}  // namespace

Tensor missing_gradient(const Tensor& t) {
  const char* why = !t.requires_grad() ? "does not require grad (call set_requires_grad() before the forward)"
                    : t.is_leaf()
                        ? "has no gradient: no backward() has reached it"
                        : "is not a leaf, so backward() keeps its gradient only after retain_grad()";
  return Tensor(std::shared_ptr<TensorImpl>(nullptr, MissingGradient{t.name(), t.shape(), why}));
}

void check_writable(const char* function, const char* name, const Tensor& t) {
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, size
  for (int64_t d = 0; d < t.rank(); ++d)
    if (t.shape()[d] > 1) dims.emplace_back(t.strides()[d], t.shape()[d]);
  std::sort(dims.begin(), dims.end());
  int64_t reach = 0;  // last offset of the dimensions so far
  for (const auto& [stride, size] : dims) {
    check<ValueError>(t.numel() == 0 || stride > reach, function, ": several elements of ", name,
                      " share one place in memory (shape ", t.shape(), ", strides ", t.strides(),
                      "), as in an expanded tensor; write to a clone()");
    reach += stride * (size - 1);
  }
}

std::string why_undefined(const Tensor& t) {
  const auto* missing = std::get_deleter<MissingGradient>(t.impl());
  if (!missing) return " (default-constructed or moved from)";
  const std::string name = missing->name.empty() ? "" : str(" \"", missing->name, '"');
  return str(": it is the grad() of the tensor", name, " of shape ", missing->shape, ", which ",
             missing->why);
}

void check_device(const char* function, Device device) {
  if (device.is_cuda()) return cuda::check_device(function, device.index);
  check<DeviceError>(device.index == 0, function, ": a CPU device has index 0, got ", device.index);
}

void check_defined(const char* function, const char* argument, const Tensor& t) {
  if (!t.defined()) [[unlikely]]
    throw ValueError(str(function, ": argument '", argument, "' is an undefined tensor", why_undefined(t)));
}

void check_floating(const char* function, const char* argument, const Tensor& t) {
  check_defined(function, argument, t);
  check<DTypeError>(is_floating(t.dtype()), function, ": needs a floating dtype, got ", t.dtype(),
                    "; allowed are f32, f64, bf16 and f16 (convert with to(vox::f32))");
}

void check_same_dtype(const char* function, const Tensor& a, const Tensor& b) {
  check<DTypeError>(a.dtype() == b.dtype(), function, ": the dtypes must be equal, got ", a.dtype(), " and ",
                    b.dtype(), " (convert one with to(dtype))");
}

void check_same_device(const char* function, const Tensor& a, const Tensor& b) {
  check<DeviceError>(a.device() == b.device(), function, ": the devices must be equal, got ", a.device(),
                     " and ", b.device(), " (move one with to(device))");
}

void check_scalar(const char* function, Scalar value, DType dtype) {
  if (is_floating(dtype)) return;
  const bool whole = value.is_integer() ||
                     (std::trunc(value.as_real()) == value.as_real() && std::abs(value.as_real()) < 9.2e18);
  const bool fits = visit_storage(dtype, [&]<class T>(T) {
    return value.as_real() >= static_cast<double>(std::numeric_limits<T>::lowest()) &&
           value.as_real() <= static_cast<double>(std::numeric_limits<T>::max());
  });
  check<ValueError>(whole && fits, function, ": the scalar ", value.as_real(), " cannot be held by dtype ",
                    dtype);
}

}  // namespace detail
}  // namespace vox
