#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <voxgrad/core/arguments.h>
#include <voxgrad/core/device.h>
#include <voxgrad/core/dtype.h>
#include <voxgrad/core/shape.h>
#include <voxgrad/core/storage.h>

namespace vox {

struct AutogradMeta;  // autograd/meta.h
struct TensorImpl;

/// A C++ number used with a tensor. It takes the tensor's dtype or, in arithmetic, the dtype that ops on it
/// compute in: x * 0.999 multiplies a bf16 tensor by the f32 0.999, not by 1. An integer dtype refuses a
/// number that it cannot hold. A floating dtype rounds, to infinity beyond its range, as a cast does.
class Scalar {
 public:
  template <detail::Number T>
  requires(!std::is_same_v<T, bool>) constexpr Scalar(T value)
      : is_integer_(std::is_integral_v<T> && (std::is_signed_v<T> || static_cast<int64_t>(value) >= 0)),
        integer_(is_integer_ ? static_cast<int64_t>(value) : 0),
        real_(static_cast<double>(value)) {}
  constexpr Scalar(Int value) : Scalar(int64_t{value}) {}
  constexpr Scalar(Real value) : Scalar(double{value}) {}

  constexpr bool is_integer() const { return is_integer_; }
  constexpr int64_t as_integer() const { return integer_; }
  constexpr double as_real() const { return real_; }

 private:
  bool is_integer_;
  int64_t integer_;
  double real_;
};

/// A Scalar that is stored or compared instead of computed with, so it may also be true or false.
class Element : public Scalar {
 public:
  using Scalar::Scalar;
  constexpr Element(Scalar value) : Scalar(value) {}
  template <detail::Number T>  // not bool alone: for Clang 14, which the page needs, that would hide Scalar's
  constexpr Element(T value) : Scalar(std::conditional_t<std::is_same_v<T, bool>, int64_t, T>(value)) {}
};

/// Dtype and device of a new tensor: `vox::zeros({2, 3}, {.dtype = vox::f64, .device =
/// vox::Device::cuda()})`.
struct TensorOptions {
  DType dtype = f32;
  Device device = Device::cpu();
};
constexpr Device::operator TensorOptions() const { return {.device = *this}; }

/// The elements start, start + step, ... below end of a dimension, as in `x[{.start = 2, .end = 5}]`.
struct Slice {
  detail::ByName by_name{};
  int64_t start = 0, end = std::numeric_limits<int64_t>::max(), step = 1;
};

/// What max(x, dim) and min(x, dim) return (ops/reduce.h).
struct ValuesAndIndices;

/// A hook sees a gradient and returns nothing, or a replacement.
using Hook = std::function<std::optional<class Tensor>(const class Tensor& gradient)>;

/// A multi-dimensional array: shared memory, seen through an offset, sizes and strides.
///
/// Copying a Tensor makes a second handle on the same tensor (as in Python); `clone()` copies the elements.
/// A default-constructed Tensor is *undefined*: it stands for "none", as in a missing bias.
/// Dimensions may be counted from the end: -1 is the last.
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(std::shared_ptr<TensorImpl> impl) : impl_(std::move(impl)) {}
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) = default;
  Tensor& operator=(const Tensor&) & = default;
  Tensor& operator=(Tensor&&) & = default;
  /// `a[0] = b` would rebind the handle that a[0] returned, and change no element.
  template <class T>
  void operator=(T&&) && {
    static_assert(sizeof(T) == 0, "to write into a part of a tensor, use copy_ or fill_: a[0].copy_(b)");
  }

  // ---- What it is -----------------------------------------------------------------------------------
  bool defined() const { return impl_ != nullptr; }
  const Shape& shape() const;
  const Shape& strides() const;  ///< in elements
  int64_t rank() const;          ///< number of dimensions
  int64_t size(Int dim) const;   ///< size of one dimension
  int64_t numel() const;         ///< number of elements
  DType dtype() const;
  Device device() const;
  TensorOptions options() const { return {dtype(), device()}; }
  bool is_contiguous() const;  ///< dense and row-major

  // ---- Elements -------------------------------------------------------------------------------------
  /// Pointer to the first element; T must be the dtype's type. For a CUDA tensor it points to device memory.
  template <class T>
  const T* data() const {
    return static_cast<const T*>(checked_data("data", dtype_of<T>()));
  }
  /// The same for writing. This counts as an in-place write: it bumps the version, and throws if grad mode is
  /// on and the tensor requires grad.
  template <class T>
  T* mutable_data() {
    return static_cast<T*>(checked_mutable_data(dtype_of<T>()));
  }
  /// All elements in logical (row-major) order, copied to the host. T must be the dtype's type. Throws
  /// OutOfMemoryError.
  template <class T>
  std::vector<T> to_vector() const {
    (void)dtype_of<T>();  // refuses types that no tensor holds
    return elements<T>();
  }
  /// The only element of a tensor with numel() == 1 and a floating dtype.
  double item() const;
  /// The only element of a tensor with numel() == 1, of any dtype, cast to the number type T: rounded if T is
  /// floating, without its fraction if T is an integer type. ValueError if that cannot hold it.
  template <detail::Number T>
  T item() const {
    using Limits = std::numeric_limits<T>;
    constexpr auto most = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    if constexpr (std::is_same_v<T, bool>)
      return element().as_real() != 0;
    else if constexpr (std::is_integral_v<T>)
      return static_cast<T>(whole_element(static_cast<int64_t>(Limits::min()),
                                          static_cast<int64_t>(std::min<uint64_t>(Limits::max(), most))));
    else
      return static_cast<T>(element().as_real());
  }

  // ---- Copies (ops/copy.cpp) ------------------------------------------------------------------------
  Tensor clone() const;            ///< a dense copy of the elements
  Tensor contiguous() const;       ///< itself if dense, else clone()
  Tensor to(Device device) const;  ///< itself if already there
  /// Itself if already of this dtype; gradients flow between floating dtypes. A floating number cast to an
  /// integer loses its fraction and is limited to the dtype's range, and NaN becomes 0. An integer wraps
  /// around. As bool, everything except 0 is true.
  Tensor to(DType dtype) const;
  Tensor detach() const;  ///< shares memory and version, but is not on the tape

  // ---- Views: they share memory (ops/views.cpp) -----------------------------------------------------
  /// Elements start, start+step, ... below end of one dimension, or to its end; bounds clamp as in Python,
  /// step >= 1.
  Tensor slice(Int dim, Int start, std::optional<Int> end = {}, Int step = 1) const;
  Tensor operator[](Int index) const;           ///< select(0, index)
  Tensor operator[](const Slice& range) const;  ///< slice(0, ...)
  Tensor select(Int dim, Int index) const;      ///< one index of `dim`, which disappears
  Tensor permute(const Shape& dims) const;      ///< dimension i of the result is dims[i]
  Tensor transpose(Int dim0, Int dim1) const;   ///< swaps two dimensions
  Tensor expand(const Shape& shape) const;      ///< repeats size-1 dimensions with stride 0; -1 keeps
  Tensor reshape(const Shape& shape) const;     ///< a view where the strides allow it, else a copy; one -1
  Tensor squeeze() const;                       ///< drops all dimensions of size 1
  Tensor squeeze(Int dim) const;                ///< drops this one if its size is 1, as PyTorch does
  Tensor unsqueeze(Int dim) const;              ///< adds a dimension of size 1
  Tensor flatten(Int start_dim = 0, Int end_dim = -1) const;

  // ---- Reductions (ops/reduce.cpp); no dims means all of them ---------------------------------------
  Tensor sum(const Shape& dims = {}, Flag keepdim = false) const;
  Tensor mean(const Shape& dims = {}, Flag keepdim = false) const;
  Tensor max(const Shape& dims = {}, Flag keepdim = false) const;
  Tensor min(const Shape& dims = {}, Flag keepdim = false) const;
  ValuesAndIndices max(detail::Integer auto dim, Flag keepdim = false) const;
  ValuesAndIndices min(detail::Integer auto dim, Flag keepdim = false) const;

  // ---- In place (ops/inplace.cpp): in grad mode, GradError if an operand requires grad --------------
  // They return this handle, so that calls chain. Do not bind the result to a reference when called on a
  // temporary.
  Tensor& add_(const Tensor& other, Scalar alpha = 1);  ///< this += alpha * other
  Tensor& add_(Scalar value);
  Tensor& sub_(const Tensor& other);
  Tensor& sub_(Scalar value);
  Tensor& mul_(const Tensor& other);
  Tensor& mul_(Scalar value);
  Tensor& div_(const Tensor& other);
  Tensor& div_(Scalar value);
  Tensor& operator+=(const Tensor& other) { return add_(other); }
  Tensor& operator+=(Scalar value) { return add_(value); }
  Tensor& operator-=(const Tensor& other) { return sub_(other); }
  Tensor& operator-=(Scalar value) { return sub_(value); }
  Tensor& operator*=(const Tensor& other) { return mul_(other); }
  Tensor& operator*=(Scalar value) { return mul_(value); }
  Tensor& operator/=(const Tensor& other) { return div_(other); }
  Tensor& operator/=(Scalar value) { return div_(value); }
  Tensor& fill_(Element value);
  Tensor& zero_() { return fill_(0); }
  Tensor& copy_(const Tensor& source);  ///< broadcasts; casts and crosses devices if need be

  // ---- Autograd (autograd/) -------------------------------------------------------------------------
  bool requires_grad() const;
  /// Sets whether backward() computes a gradient for this tensor, a leaf of floating dtype.
  Tensor& set_requires_grad(bool requires_grad = true);
  bool is_leaf() const;  ///< not made by a recorded op
  /// The gradient so far. If there is none, an undefined tensor. An error about its use names this tensor and
  /// the reason: no backward() reached it, or it is not a leaf and did not retain_grad().
  Tensor grad() const;
  void set_grad(const Tensor& grad);  ///< replaces it; an undefined tensor clears it
  void zero_grad() { set_grad({}); }
  /// Keeps the gradient of a non-leaf in grad() during backward.
  Tensor& retain_grad();
  /// Calls `hook(gradient)` whenever a gradient of this tensor is complete, before it is used. The hook
  /// may return nothing, or a Tensor of the same shape and dtype that takes the gradient's place.
  /// Returns a number for remove_hook(). A hook that holds this tensor itself would keep both alive for ever:
  /// let it hold a detach(). Throws ValueError for an empty std::function or a null pointer.
  template <class F>
  int64_t register_hook(F hook) {
    static_assert(std::is_invocable_v<F&, const Tensor&>, "register_hook: a hook takes a `const Tensor&`");
    using Result = std::invoke_result_t<F&, const Tensor&>;
    static_assert(std::is_void_v<Result> || std::is_convertible_v<Result, std::optional<Tensor>>,
                  "register_hook: a hook returns nothing, or the gradient's replacement");
    if constexpr (std::is_void_v<Result>) {
      std::function<void(const Tensor&)> look(std::move(hook));
      if (!look) return add_hook({});
      return add_hook([look = std::move(look)](const Tensor& g) -> std::optional<Tensor> {
        look(g);
        return std::nullopt;
      });
    } else {
      return add_hook(std::move(hook));
    }
  }
  void remove_hook(Int id);
  /// Names this tensor, for all its handles, in tapes, recordings and errors; "" removes the name. Views,
  /// copies and detach() have no name. Throws ValueError for control characters.
  Tensor& set_name(const std::string& name);
  std::string name() const;  ///< "" if it has none

  struct BackwardOptions {
    detail::ByName by_name{};
    bool retain_graph = false;  ///< keep saved tensors for another backward
    bool create_graph = false;  ///< record the backward itself; implies retain_graph
  };
  /// Runs the tape from this tensor and adds into the grad() of every leaf that requires grad.
  /// `gradient` has this tensor's shape and dtype; it may be left out for a tensor of one element.
  void backward(const Tensor& gradient, BackwardOptions options) const;
  void backward(BackwardOptions options) const { backward(Tensor(), options); }
  void backward(const Tensor& gradient = {}) const { backward(gradient, BackwardOptions{}); }

  const std::shared_ptr<TensorImpl>& impl() const { return impl_; }

 private:
  const TensorImpl& checked(const char* function) const;
  const void* checked_data(const char* function, DType dtype) const;
  void* checked_mutable_data(DType dtype);
  template <class T>
  std::vector<T> elements() const;
  Element element() const;
  int64_t whole_element(int64_t lowest, int64_t highest) const;
  int64_t add_hook(Hook hook);

  std::shared_ptr<TensorImpl> impl_;
};

/// The state behind a Tensor. Only `autograd` changes after construction, except through detail::set_data.
struct TensorImpl {
  TensorImpl(std::shared_ptr<Storage> storage, int64_t offset, Shape shape, Shape strides, DType dtype);
  ~TensorImpl();

  std::shared_ptr<Storage> storage;
  int64_t offset;  // in elements
  Shape shape;
  Shape strides;  // in elements
  int64_t numel;
  DType dtype;
  std::unique_ptr<AutogradMeta> autograd;  // absent in inference

  /// Address of the first element. A tensor without elements may have no memory; then null, whatever the
  /// offset.
  void* data() const {
    return numel == 0 ? storage->data() : static_cast<char*>(storage->data()) + offset * size_of(dtype);
  }
};

/// A dense tensor of unwritten memory. Sizes and bytes are checked before memory is touched.
Tensor empty(const Shape& shape, TensorOptions options = {});

/// A dense unwritten tensor of the same shape, dtype and device.
inline Tensor empty_like(const Tensor& t) { return empty(t.shape(), t.options()); }

namespace detail {
/// Bytes of a dense tensor; ShapeError, naming `function`, unless 64 bits can count them and the elements.
int64_t checked_bytes(const char* function, const Shape& shape, DType dtype);
/// Like empty(), but errors name `function`.
Tensor empty_for(const char* function, const Shape& shape, TensorOptions options);

/// A view of t's memory that is not on the tape. The caller has checked that it stays inside.
Tensor alias(const Tensor& t, int64_t offset, const Shape& shape, const Shape& strides);

/// Replaces memory, shape and dtype of `t`, for all its handles, by those of `data`. Tensors saved by the
/// tape keep the old memory.
void set_data(const Tensor& t, const Tensor& data);

/// First element, for kernels: no checks, no version bump. ptr_or_null is for operands that may be undefined.
template <class T>
const T* ptr(const Tensor& t) {
  return static_cast<const T*>(t.impl()->data());
}
template <class T>
const T* ptr_or_null(const Tensor& t) {
  return t.defined() ? ptr<T>(t) : nullptr;
}
template <class T>
T* mutable_ptr(const Tensor& t) {
  return static_cast<T*>(t.impl()->data());
}

/// Every in-place write calls this first. It throws if the tape had to record the write (grad mode is on, and
/// target or a source requires grad); otherwise it bumps the version of target's storage.
void begin_in_place(const char* function, const Tensor& target, const Tensor& source = {});
/// Throws ValueError if several elements of t share one place in memory, as in an expanded tensor.
void check_writable(const char* function, const char* name, const Tensor& t);

/// Why `t` is undefined, for messages: " (default-constructed or moved from)", or whose gradient it stands
/// for.
std::string why_undefined(const Tensor& t);
/// An undefined tensor that stands for the missing gradient of t. why_undefined() tells.
Tensor missing_gradient(const Tensor& t);
/// Throws DeviceError, naming `function`, unless the device exists.
void check_device(const char* function, Device device);
/// Throws unless `t` is defined; `argument` names it in the message.
void check_defined(const char* function, const char* argument, const Tensor& t);
/// Throws ValueError if the std::function `f` is empty; `argument` names it in the message.
template <class F>
void check_callable(const char* function, const char* argument, const std::function<F>& f) {
  check<ValueError>(static_cast<bool>(f), function, ": argument '", argument, "' is an empty function");
}
/// Throws unless `t` is defined and floating; `argument` names it in the message.
void check_floating(const char* function, const char* argument, const Tensor& t);
/// Throws unless a and b (both defined) have one dtype and one device; the message names both.
void check_same_dtype(const char* function, const Tensor& a, const Tensor& b);
void check_same_device(const char* function, const Tensor& a, const Tensor& b);
/// Throws unless `dtype` can hold `value` (it cannot hold 300 in u8, or 0.5 in i64).
void check_scalar(const char* function, Scalar value, DType dtype);
}  // namespace detail

}  // namespace vox
