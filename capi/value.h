#pragma once

#include <array>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <voxgrad/voxgrad.h>

#include "errors.h"

// Note [Values]
// An op that is called by name gets a flat list of values. `op_of(f)` makes such an op of the C++ function f:
// it reads one value for each parameter, from left to right, as the type that the parameter has. A struct of
// options takes one value for each of its fields, in their order, and fields without a value keep their
// defaults. So a table of ops needs one line an op, and the ops' C++ signatures say what they take.

namespace vox::capi {

/// One argument: nothing, a tensor, a number (an integer, a real or a flag), text (the name of a dtype, a
/// device or a mode), or a list.
class Value {
 public:
  using List = std::vector<int64_t>;
  using Reals = std::vector<double>;
  using Tensors = std::vector<Tensor>;

  Value() = default;
  template <detail::Number T>
  Value(T number) : value_(Scalar(Element(number))) {}
  Value(Scalar number) : value_(number) {}
  Value(Tensor tensor) : value_(std::move(tensor)) {}
  Value(const char* text) : value_(std::string(text)) {}
  Value(std::initializer_list<int64_t> list) : value_(List(list)) {}
  Value(const Shape& list) : value_(List(list.begin(), list.end())) {}
  Value(List list) : value_(std::move(list)) {}
  Value(Reals list) : value_(std::move(list)) {}
  Value(Tensors list) : value_(std::move(list)) {}

  template <class T>
  const T* get() const {
    return std::get_if<T>(&value_);
  }
  bool is_given() const { return value_.index() != 0; }

 private:
  std::variant<std::monostate, Tensor, Scalar, std::string, List, Reals, Tensors> value_;
};
using Values = std::vector<Value>;

// ---- Structs of options ----------------------------------------------------------------------------------

inline auto fields(TensorOptions& o) { return std::tie(o.dtype, o.device); }
inline auto fields(Activation& o) { return std::tie(o.negative_slope); }
inline auto fields(ClampOptions& o) { return std::tie(o.min, o.max); }
inline auto fields(Conv1dOptions& o) { return std::tie(o.stride, o.padding, o.dilation, o.groups); }
inline auto fields(Conv2dOptions& o) { return std::tie(o.stride, o.padding, o.dilation, o.groups); }
inline auto fields(Conv3dOptions& o) { return std::tie(o.stride, o.padding, o.dilation, o.groups); }
template <class O>
requires requires(O& o) { o.output_padding; }
auto fields(O& o) {
  return std::tie(o.stride, o.padding, o.output_padding, o.groups, o.dilation, o.output_size);
}
template <class Size, class OptionalSize>
auto fields(MaxPoolOptions<Size, OptionalSize>& o) {
  return std::tie(o.kernel_size, o.stride, o.padding, o.dilation, o.ceil_mode);
}
template <class Size, class OptionalSize>
auto fields(AvgPoolOptions<Size, OptionalSize>& o) {
  return std::tie(o.kernel_size, o.stride, o.padding, o.ceil_mode, o.count_include_pad, o.divisor_override);
}
template <class Size, class OptionalSize>
auto fields(MaxUnpoolOptions<Size, OptionalSize>& o) {
  return std::tie(o.kernel_size, o.stride, o.padding, o.output_size);
}
inline auto fields(InterpolateOptions& o) {
  return std::tie(o.size, o.scale_factor, o.mode, o.align_corners);
}
inline auto fields(GridSampleOptions& o) { return std::tie(o.mode, o.padding, o.align_corners); }
inline auto fields(BatchNormOptions& o) { return std::tie(o.training, o.momentum, o.eps, o.activation); }
inline auto fields(InstanceNormOptions& o) {
  return std::tie(o.use_input_stats, o.momentum, o.eps, o.activation);
}
inline auto fields(CrossEntropyOptions& o) {
  return std::tie(o.weight, o.ignore_index, o.reduction, o.label_smoothing);
}
inline auto fields(DiceOptions& o) {
  return std::tie(o.sigmoid, o.softmax, o.include_background, o.squared_pred, o.batch, o.generalized, o.alpha,
                  o.beta, o.smooth_nr, o.smooth_dr, o.mask, o.reduction);
}
inline auto fields(FocalOptions& o) {
  return std::tie(o.gamma, o.alpha, o.softmax, o.include_background, o.reduction);
}
inline auto fields(AttentionOptions& o) { return std::tie(o.attn_mask, o.dropout_p, o.is_causal, o.scale); }
inline auto fields(BinaryCrossEntropyOptions& o) { return std::tie(o.weight, o.pos_weight, o.reduction); }

// ---- Reading ---------------------------------------------------------------------------------------------

template <class T>
const T& get(const Value& value) {
  if (!value.get<T>()) throw Inexpressible("it is of another kind");
  return *value.get<T>();
}

/// What the text stands for.
template <class T>
T named(const Value& value, std::initializer_list<std::pair<const char*, T>> names) {
  const std::string& text = get<std::string>(value);
  for (const auto& [name, meaning] : names) {
    if (text == name) return meaning;
  }
  throw Inexpressible("it is " + text);
}

inline void read(const Value& v, Tensor& out) { out = v.is_given() ? get<Tensor>(v) : Tensor(); }
inline void read(const Value& v, Scalar& out) { out = get<Scalar>(v); }
inline void read(const Value& v, double& out) { out = get<Scalar>(v).as_real(); }
inline void read(const Value& v, int64_t& out) {
  if (!get<Scalar>(v).is_integer()) throw Inexpressible("it is no integer");
  out = get<Scalar>(v).as_integer();
}
inline void read(const Value& v, bool& out) {
  int64_t flag;
  read(v, flag);
  out = flag != 0;
}
inline void read(const Value& v, std::string& out) { out = get<std::string>(v); }
inline void read(const Value& v, std::vector<int64_t>& out) { out = get<Value::List>(v); }
inline void read(const Value& v, std::vector<Tensor>& out) { out = get<Value::Tensors>(v); }
inline void read(const Value& v, Shape& out) { out = get<Value::List>(v); }

/// Numbers along each axis: a list, or one number for all axes.
template <class T>
std::vector<T> along_axes(const Value& v, size_t axes) {
  std::vector<T> list(axes);
  if (v.get<Scalar>()) {
    T all;
    read(v, all);
    list.assign(axes, all);
  } else {
    list = get<std::vector<T>>(v);
  }
  if (list.size() != axes) throw Inexpressible("the list has another length");
  return list;
}
inline void read(const Value& v, Pair& out) {
  const auto list = along_axes<int64_t>(v, 2);
  out = {list[0], list[1]};
}
inline void read(const Value& v, Triple& out) {
  const auto list = along_axes<int64_t>(v, 3);
  out = {list[0], list[1], list[2]};
}
inline void read(const Value& v, std::array<double, 3>& out) {
  const auto list = along_axes<double>(v, 3);
  out = {list[0], list[1], list[2]};
}
template <class T>
void read(const Value& v, std::optional<T>& out) {
  out.reset();
  if (!v.is_given()) return;
  if constexpr (std::is_same_v<T, Scalar>)
    out = get<Scalar>(v);
  else
    read(v, out.emplace());
}

inline void read(const Value& v, DType& out) {
  out = named<DType>(v, {{"f32", f32},
                         {"f64", f64},
                         {"i64", i64},
                         {"u8", u8},
                         {"bool", boolean},
                         {"bf16", bf16},
                         {"f16", f16},
                         {"i16", i16},
                         {"u16", u16},
                         {"i32", i32}});
}
inline void read(const Value& v, Device& out) {
  out = named<Device>(v, {{"cpu", Device::cpu()}, {"cuda", Device::cuda()}});
}
inline void read(const Value& v, Reduction& out) {
  out = named<Reduction>(v, {{"none", Reduction::none}, {"mean", Reduction::mean}, {"sum", Reduction::sum}});
}
inline void read(const Value& v, PadMode& out) {
  out = named<PadMode>(
      v, {{"reflect", PadMode::reflect}, {"replicate", PadMode::replicate}, {"circular", PadMode::circular}});
}
inline void read(const Value& v, Float32Precision& out) {
  using enum Float32Precision;
  out = named<Float32Precision>(v, {{"highest", highest}, {"high", high}, {"medium", medium}});
}
inline void read(const Value& v, InterpolateOptions::Mode& out) {
  using enum InterpolateOptions::Mode;
  out = named<InterpolateOptions::Mode>(v, {{"nearest", nearest}, {"trilinear", trilinear}});
}

inline void read(const Value& v, GridSampleOptions::Padding& out) {
  using enum GridSampleOptions::Padding;
  out = named<GridSampleOptions::Padding>(v,
                                          {{"zeros", zeros}, {"border", border}, {"reflection", reflection}});
}

/// What an Int, Real or Flag (core/arguments.h) holds; other types as they are.
template <class T>
struct Plain {
  using Type = T;
};
template <class T>
struct Plain<vox::detail::Argument<T>> {
  using Type = T;
};
template <class T>
struct Plain<std::optional<vox::detail::Argument<T>>> {
  using Type = std::optional<T>;
};

/// Reads the values of one call from left to right.
class Reader {
 public:
  explicit Reader(const Values& values) : values_(values) {}

  /// The next value as a T. A struct of options takes as many as there are, up to the number of its fields.
  template <class T>
  T next() {
    using P = typename Plain<T>::Type;
    if constexpr (!std::is_same_v<P, T>) {
      return next<P>();
    } else if constexpr (requires(T & options) { fields(options); }) {
      T options;
      std::apply([this](auto&... field) { (this->set(field), ...); }, fields(options));
      return options;
    } else {
      T result = first<T>();
      try {
        read(place_ < values_.size() ? values_[place_] : Value(), result);
      } catch (const Inexpressible& error) {
        throw Inexpressible(str("argument ", place_, ": ", error.what()));
      }
      ++place_;
      return result;
    }
  }
  void finish() const {
    if (place_ < values_.size()) throw Inexpressible("there are too many arguments");
  }

 private:
  template <class T>
  static T first() {
    if constexpr (std::is_base_of_v<Scalar, T>)
      return 0;
    else
      return T();
  }
  template <class Field>
  void set(Field& field) {
    if (place_ < values_.size()) field = next<Field>();
  }

  const Values& values_;
  size_t place_ = 0;
};

}  // namespace vox::capi
