#include <voxgrad/voxgrad.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

// What tests/opinfo loads (voxgrad.py): voxgrad's public ops by name, behind a plain C ABI. A tensor is an
// opaque handle, and a call takes a flat list of arguments. Every function returns null, or "<class of the
// exception>: <message>", which is good until this thread's next call; no exception gets out.

extern "C" {

enum VoxKind : int { none, tensor, integer, real, text, integers, reals, tensors };

struct VoxArgument {
  VoxKind kind;
  int64_t count;    ///< of integers, reals, tensors
  int64_t integer;  ///< the value of these two kinds
  double real;
  const void* data;  ///< a handle, characters, or an array of int64_t, double or handles
};
}

namespace {

using vox::Tensor;

/// The call cannot be written with voxgrad's interface: no error of an op, and no result either.
struct Inexpressible : std::runtime_error {
  using std::runtime_error::runtime_error;
};

const char* class_of(const std::exception& error) {
  if (dynamic_cast<const Inexpressible*>(&error)) return "Inexpressible";
  if (dynamic_cast<const vox::ShapeError*>(&error)) return "ShapeError";
  if (dynamic_cast<const vox::DTypeError*>(&error)) return "DTypeError";
  if (dynamic_cast<const vox::DeviceError*>(&error)) return "DeviceError";
  if (dynamic_cast<const vox::ValueError*>(&error)) return "ValueError";
  if (dynamic_cast<const vox::GradError*>(&error)) return "GradError";
  if (dynamic_cast<const vox::CudaError*>(&error)) return "CudaError";
  if (dynamic_cast<const vox::OutOfMemoryError*>(&error)) return "OutOfMemoryError";
  if (dynamic_cast<const vox::Error*>(&error)) return "Error";
  return "std::exception";
}

template <class F>
const char* guarded(F f) noexcept {
  static thread_local std::string message;
  try {
    f();
    return nullptr;
  } catch (const std::exception& error) {
    message = std::string(class_of(error)) + ": " + error.what();
  } catch (...) {
    message = "unknown: an exception that is no std::exception";
  }
  return message.c_str();
}

vox::DType dtype_named(const std::string& name) {
  for (vox::DType dtype : {vox::f32, vox::f64, vox::i64, vox::u8, vox::boolean, vox::bf16, vox::f16})
    if (name == vox::to_string(dtype)) return dtype;
  throw Inexpressible("no dtype " + name);
}

vox::Device device_of(int cuda) { return cuda ? vox::Device::cuda() : vox::Device::cpu(); }

Tensor borrow(void* data, vox::DType dtype, const vox::Shape& shape) {
  return vox::detail::from_blob(data, dtype, shape, vox::contiguous_strides(shape), vox::Device::cpu(), {});
}

/// The arguments of one call; what an op does not take is Inexpressible.
class Arguments {
 public:
  Arguments(const VoxArgument* first, int64_t count) : arguments_(first, first + count) {}

  bool is_number(size_t i) const { return kind(i) == VoxKind::integer || kind(i) == VoxKind::real; }
  bool has(size_t i) const { return kind(i) != VoxKind::none; }

  Tensor tensor(size_t i) const {
    if (!has(i)) return {};
    return *static_cast<const Tensor*>(at(i, VoxKind::tensor).data);
  }
  std::vector<Tensor> tensors(size_t i) const {
    std::vector<Tensor> list;
    for (const Tensor* t : array<const Tensor*>(i, VoxKind::tensors)) list.push_back(*t);
    return list;
  }
  vox::Scalar number(size_t i) const {
    if (kind(i) == VoxKind::integer) return arguments_[i].integer;
    return at(i, VoxKind::real).real;
  }
  std::optional<vox::Scalar> optional_number(size_t i) const {
    if (!has(i)) return {};
    return number(i);
  }
  double real(size_t i) const { return number(i).as_real(); }
  int64_t integer(size_t i) const { return at(i, VoxKind::integer).integer; }
  bool flag(size_t i) const { return integer(i) != 0; }
  std::string text(size_t i) const { return static_cast<const char*>(at(i, VoxKind::text).data); }
  std::vector<int64_t> integers(size_t i) const { return array<int64_t>(i, VoxKind::integers); }
  vox::Shape shape(size_t i) const { return integers(i); }
  vox::Pair pair(size_t i) const { return exactly(i, 2), vox::Pair(integers(i)[0], integers(i)[1]); }
  vox::Triple triple(size_t i) const {
    exactly(i, 3);
    return {integers(i)[0], integers(i)[1], integers(i)[2]};
  }
  std::optional<int64_t> optional_integer(size_t i) const {
    if (!has(i)) return {};
    return integer(i);
  }
  vox::OptionalTriple optional_triple(size_t i) const {
    if (!has(i)) return {};
    return triple(i);
  }
  vox::OptionalScale optional_scale(size_t i) const {
    if (!has(i)) return {};
    exactly(i, 3);
    const std::vector<double> scale = array<double>(i, VoxKind::reals);
    return {scale[0], scale[1], scale[2]};
  }
  vox::Reduction reduction(size_t i) const {
    const std::string name = text(i);
    if (name == "none") return vox::Reduction::none;
    if (name == "mean") return vox::Reduction::mean;
    if (name == "sum") return vox::Reduction::sum;
    throw Inexpressible("reduction " + name);
  }
  vox::TensorOptions options(size_t dtype, size_t cuda) const {
    return {dtype_named(text(dtype)), device_of(flag(cuda))};
  }

 private:
  VoxKind kind(size_t i) const { return i < arguments_.size() ? arguments_[i].kind : VoxKind::none; }
  const VoxArgument& at(size_t i, VoxKind wanted) const {
    if (kind(i) != wanted) throw Inexpressible("argument " + std::to_string(i) + " is of another kind");
    return arguments_[i];
  }
  void exactly(size_t i, int64_t count) const {
    if (arguments_.at(i).count != count)
      throw Inexpressible("argument " + std::to_string(i) + " has not " + std::to_string(count) + " numbers");
  }
  template <class T>
  std::vector<T> array(size_t i, VoxKind wanted) const {
    const VoxArgument& a = at(i, wanted);
    return {static_cast<const T*>(a.data), static_cast<const T*>(a.data) + a.count};
  }

  std::vector<VoxArgument> arguments_;
};

using Op = std::function<std::vector<Tensor>(const Arguments&)>;

template <class F>
Op one(F f) {
  return [f](const Arguments& a) { return std::vector<Tensor>{f(a)}; };
}

/// An op of two operands, each a tensor or, where there is such an overload, a number.
template <class F>
Op binary(F f) {
  return one([f](const Arguments& a) {
    if (!a.is_number(0) && !a.is_number(1)) return f(a.tensor(0), a.tensor(1));
    if constexpr (std::is_invocable_v<F, Tensor, vox::Scalar>)
      if (!a.is_number(0)) return f(a.tensor(0), a.number(1));
    if constexpr (std::is_invocable_v<F, vox::Scalar, Tensor>)
      if (!a.is_number(1)) return f(a.number(0), a.tensor(1));
    throw Inexpressible("no overload with a number there");
  });
}

/// An op of a tensor, dims and keepdim.
Op reduction(Tensor (*f)(const Tensor&, const vox::Shape&, vox::Flag)) {
  return one([f](const Arguments& a) { return f(a.tensor(0), a.shape(1), a.flag(2)); });
}
std::vector<Tensor> pair(const vox::ValuesAndIndices& p) { return {p.values, p.indices}; }
Op unary(Tensor (*f)(const Tensor&)) {
  return one([f](const Arguments& a) { return f(a.tensor(0)); });
}
Op loss(Tensor (*f)(const Tensor&, const Tensor&, vox::Reduction)) {
  return one([f](const Arguments& a) { return f(a.tensor(0), a.tensor(1), a.reduction(2)); });
}

#define VOX_UNARY(op) \
  { #op, unary(vox::op) }
#define VOX_BINARY(op)                                                                                       \
  {                                                                                                          \
#op,                                                                                                     \
        binary(                                                                                              \
            [](const auto& a, const auto& b) requires requires { vox::op(a, b); } { return vox::op(a, b); }) \
  }
#define VOX_REDUCTION(op) \
  { #op, reduction(vox::op) }

/// Parameters that PyTorch passes to the function are members of the layer here; tests bring their own.
Tensor linear(const Arguments& a) {
  const Tensor weight = a.tensor(1), bias = a.tensor(2);
  vox::check<Inexpressible>(weight.rank() == 2, "a weight of ", weight.rank(), " dimensions");
  vox::nn::Linear layer({.in_features = weight.size(1),
                         .out_features = weight.size(0),
                         .bias = bias.defined(),
                         .tensor = weight.options()});
  layer.weight = weight;
  layer.bias = bias;
  return layer.forward(a.tensor(0));
}

/// Copies of the running mean and variance, arguments 1 and 2, which the op may update.
struct Running {
  Tensor mean, variance;
  explicit Running(const Arguments& a)
      : mean(a.has(1) ? a.tensor(1).detach().clone() : Tensor()),
        variance(a.has(2) ? a.tensor(2).detach().clone() : Tensor()) {}
  std::vector<Tensor> after(const Tensor& y) const {
    return mean.defined() ? std::vector<Tensor>{y, mean, variance} : std::vector<Tensor>{y};
  }
};

/// input, running mean and variance, weight, bias, training, momentum, eps. Returns y and the new running
/// mean and variance, if there are any.
std::vector<Tensor> batch_norm(const Arguments& a) {
  const Running running(a);
  return running.after(vox::batch_norm(a.tensor(0), running.mean, running.variance, a.tensor(3), a.tensor(4),
                                       {.training = a.flag(5), .momentum = a.real(6), .eps = a.real(7)}));
}
/// Likewise, with use_input_stats.
std::vector<Tensor> instance_norm(const Arguments& a) {
  const Running running(a);
  return running.after(
      vox::instance_norm(a.tensor(0), running.mean, running.variance, a.tensor(3), a.tensor(4),
                         {.use_input_stats = a.flag(5), .momentum = a.real(6), .eps = a.real(7)}));
}

vox::Conv3dOptions conv3d_options(const Arguments& a, size_t i) {
  return {.stride = a.triple(i),
          .padding = a.triple(i + 1),
          .dilation = a.triple(i + 2),
          .groups = a.integer(i + 3)};
}

Tensor interpolate(const Arguments& a) {
  using enum vox::InterpolateOptions::Mode;
  return vox::interpolate(a.tensor(0), {.size = a.optional_triple(1),
                                        .scale_factor = a.optional_scale(2),
                                        .mode = a.text(3) == "nearest" ? nearest : trilinear,
                                        .align_corners = a.flag(4)});
}

const std::map<std::string, Op>& ops() {
  static const std::map<std::string, Op> table = {
      VOX_BINARY(add),
      VOX_BINARY(sub),
      VOX_BINARY(mul),
      VOX_BINARY(div),
      VOX_BINARY(pow),
      VOX_BINARY(maximum),
      VOX_BINARY(minimum),
      VOX_BINARY(eq),
      VOX_BINARY(ne),
      VOX_BINARY(lt),
      VOX_BINARY(le),
      VOX_BINARY(gt),
      VOX_BINARY(ge),
      VOX_BINARY(logical_and),
      VOX_BINARY(logical_or),
      VOX_BINARY(logical_xor),
      VOX_BINARY(bmm),
      VOX_UNARY(neg),
      VOX_UNARY(abs),
      VOX_UNARY(sign),
      VOX_UNARY(floor),
      VOX_UNARY(ceil),
      VOX_UNARY(round),
      VOX_UNARY(exp),
      VOX_UNARY(sin),
      VOX_UNARY(cos),
      VOX_UNARY(log1p),
      VOX_UNARY(expm1),
      VOX_UNARY(gelu_tanh),
      VOX_UNARY(isnan),
      VOX_UNARY(isinf),
      VOX_UNARY(isfinite),
      VOX_UNARY(logical_not),
      VOX_UNARY(log),
      VOX_UNARY(sqrt),
      VOX_UNARY(rsqrt),
      VOX_UNARY(erf),
      VOX_UNARY(tanh),
      VOX_UNARY(sigmoid),
      VOX_UNARY(relu),
      VOX_UNARY(gelu),
      VOX_UNARY(silu),
      VOX_UNARY(mish),
      VOX_UNARY(relu6),
      VOX_UNARY(hardsigmoid),
      VOX_UNARY(hardswish),
      VOX_REDUCTION(sum),
      VOX_REDUCTION(mean),
      VOX_REDUCTION(max),
      VOX_REDUCTION(min),
      VOX_REDUCTION(argmax),
      VOX_REDUCTION(argmin),
      VOX_REDUCTION(logsumexp),
      VOX_REDUCTION(prod),
      VOX_REDUCTION(any),
      VOX_REDUCTION(all),
      {"max_dim", [](const Arguments& a) { return pair(vox::max(a.tensor(0), a.integer(1), a.flag(2))); }},
      {"min_dim", [](const Arguments& a) { return pair(vox::min(a.tensor(0), a.integer(1), a.flag(2))); }},
      {"leaky_relu", one([](const Arguments& a) { return vox::leaky_relu(a.tensor(0), a.real(1)); })},
      {"clamp", one([](const Arguments& a) {
         if (!a.is_number(1) && !a.is_number(2)) return vox::clamp(a.tensor(0), a.tensor(1), a.tensor(2));
         return vox::clamp(a.tensor(0), {.min = a.optional_number(1), .max = a.optional_number(2)});
       })},
      {"hardtanh",
       one([](const Arguments& a) { return vox::hardtanh(a.tensor(0), a.number(1), a.number(2)); })},
      {"elu", one([](const Arguments& a) { return vox::elu(a.tensor(0), a.real(1)); })},
      {"softplus", one([](const Arguments& a) { return vox::softplus(a.tensor(0), a.real(1), a.real(2)); })},
      {"where", one([](const Arguments& a) {
         return a.is_number(1)   ? vox::where(a.tensor(0), a.number(1), a.tensor(2))
                : a.is_number(2) ? vox::where(a.tensor(0), a.tensor(1), a.number(2))
                                 : vox::where(a.tensor(0), a.tensor(1), a.tensor(2));
       })},
      {"masked_fill",
       one([](const Arguments& a) { return vox::masked_fill(a.tensor(0), a.tensor(1), a.number(2)); })},
      {"sum_to", one([](const Arguments& a) { return vox::sum_to(a.tensor(0), a.shape(1)); })},
      {"softmax", one([](const Arguments& a) { return vox::softmax(a.tensor(0), a.integer(1)); })},
      {"log_softmax", one([](const Arguments& a) { return vox::log_softmax(a.tensor(0), a.integer(1)); })},
      {"matmul", one([](const Arguments& a) { return vox::matmul(a.tensor(0), a.tensor(1)); })},
      {"linear", one(linear)},
      {"batch_norm", batch_norm},
      {"instance_norm", instance_norm},
      {"group_norm", one([](const Arguments& a) {
         return vox::group_norm(a.tensor(0), a.integer(1), a.tensor(2), a.tensor(3), a.real(4));
       })},
      {"layer_norm", one([](const Arguments& a) {
         return vox::layer_norm(a.tensor(0), a.shape(1), a.tensor(2), a.tensor(3), a.real(4));
       })},
      {"var_mean",
       [](const Arguments& a) {
         const auto [var, mean] = vox::var_mean(a.tensor(0), a.shape(1), a.real(2), a.flag(3));
         return std::vector<Tensor>{var, mean};
       }},
      {"var",
       one([](const Arguments& a) { return vox::var(a.tensor(0), a.shape(1), a.real(2), a.flag(3)); })},
      {"std",
       one([](const Arguments& a) { return vox::std(a.tensor(0), a.shape(1), a.real(2), a.flag(3)); })},
      {"norm",
       one([](const Arguments& a) { return vox::norm(a.tensor(0), a.real(1), a.shape(2), a.flag(3)); })},

      {"conv1d", one([](const Arguments& a) {
         return vox::conv1d(a.tensor(0), a.tensor(1), a.tensor(2),
                            {.stride = a.integer(3),
                             .padding = a.integer(4),
                             .dilation = a.integer(5),
                             .groups = a.integer(6)});
       })},
      {"conv2d", one([](const Arguments& a) {
         return vox::conv2d(
             a.tensor(0), a.tensor(1), a.tensor(2),
             {.stride = a.pair(3), .padding = a.pair(4), .dilation = a.pair(5), .groups = a.integer(6)});
       })},
      {"conv3d", one([](const Arguments& a) {
         return vox::conv3d(a.tensor(0), a.tensor(1), a.tensor(2), conv3d_options(a, 3));
       })},
      {"conv3d_weight_grad", one([](const Arguments& a) {
         return vox::conv3d_weight_grad(a.tensor(0), a.tensor(1), a.triple(2), conv3d_options(a, 3));
       })},
      {"conv_transpose1d", one([](const Arguments& a) {
         return vox::conv_transpose1d(a.tensor(0), a.tensor(1), a.tensor(2),
                                      {.stride = a.integer(3),
                                       .padding = a.integer(4),
                                       .output_padding = a.integer(5),
                                       .groups = a.integer(6),
                                       .dilation = a.integer(7)});
       })},
      {"conv_transpose2d", one([](const Arguments& a) {
         return vox::conv_transpose2d(a.tensor(0), a.tensor(1), a.tensor(2),
                                      {.stride = a.pair(3),
                                       .padding = a.pair(4),
                                       .output_padding = a.pair(5),
                                       .groups = a.integer(6),
                                       .dilation = a.pair(7)});
       })},
      {"conv_transpose3d", one([](const Arguments& a) {
         return vox::conv_transpose3d(a.tensor(0), a.tensor(1), a.tensor(2),
                                      {.stride = a.triple(3),
                                       .padding = a.triple(4),
                                       .output_padding = a.triple(5),
                                       .groups = a.integer(6),
                                       .dilation = a.triple(7)});
       })},
      {"max_pool3d", one([](const Arguments& a) {
         return vox::max_pool3d(a.tensor(0), {.kernel_size = a.triple(1),
                                              .stride = a.optional_triple(2),
                                              .padding = a.triple(3),
                                              .dilation = a.triple(4),
                                              .ceil_mode = a.flag(5)});
       })},
      {"avg_pool3d", one([](const Arguments& a) {
         return vox::avg_pool3d(a.tensor(0), {.kernel_size = a.triple(1),
                                              .stride = a.optional_triple(2),
                                              .padding = a.triple(3),
                                              .ceil_mode = a.flag(4),
                                              .count_include_pad = a.flag(5),
                                              .divisor_override = a.optional_integer(6)});
       })},
      {"adaptive_max_pool3d",
       one([](const Arguments& a) { return vox::adaptive_max_pool3d(a.tensor(0), a.triple(1)); })},
      {"adaptive_avg_pool3d",
       one([](const Arguments& a) { return vox::adaptive_avg_pool3d(a.tensor(0), a.triple(1)); })},
      {"interpolate", one(interpolate)},

      {"mse_loss", loss(vox::mse_loss)},
      {"l1_loss", loss(vox::l1_loss)},
      {"smooth_l1_loss", one([](const Arguments& a) {
         return vox::smooth_l1_loss(a.tensor(0), a.tensor(1), a.reduction(2), a.real(3));
       })},
      {"huber_loss", one([](const Arguments& a) {
         return vox::huber_loss(a.tensor(0), a.tensor(1), a.reduction(2), a.real(3));
       })},
      {"binary_cross_entropy_with_logits", one([](const Arguments& a) {
         return vox::binary_cross_entropy_with_logits(
             a.tensor(0), a.tensor(1),
             {.weight = a.tensor(2), .pos_weight = a.tensor(3), .reduction = a.reduction(4)});
       })},
      {"cross_entropy", one([](const Arguments& a) {
         return vox::cross_entropy(a.tensor(0), a.tensor(1),
                                   {.weight = a.tensor(2),
                                    .ignore_index = a.integer(3),
                                    .reduction = a.reduction(4),
                                    .label_smoothing = a.real(5)});
       })},

      {"cat", one([](const Arguments& a) { return vox::cat(a.tensors(0), a.integer(1)); })},
      {"stack", one([](const Arguments& a) { return vox::stack(a.tensors(0), a.integer(1)); })},
      {"pad", one([](const Arguments& a) { return vox::pad(a.tensor(0), a.integers(1), a.number(2)); })},
      {"pad_by", one([](const Arguments& a) {
         const std::string mode = a.text(2);
         return vox::pad(a.tensor(0), a.integers(1),
                         mode == "reflect"     ? vox::PadMode::reflect
                         : mode == "replicate" ? vox::PadMode::replicate
                                               : vox::PadMode::circular);
       })},
      {"flip", one([](const Arguments& a) { return vox::flip(a.tensor(0), a.shape(1)); })},
      {"roll", one([](const Arguments& a) { return vox::roll(a.tensor(0), a.shape(1), a.shape(2)); })},
      {"one_hot", one([](const Arguments& a) { return vox::one_hot(a.tensor(0), a.integer(1)); })},
      {"index_select",
       one([](const Arguments& a) { return vox::index_select(a.tensor(0), a.integer(1), a.tensor(2)); })},
      {"slice", one([](const Arguments& a) {
         return a.tensor(0).slice(a.integer(1), a.integer(2), a.integer(3), a.integer(4));
       })},
      {"select", one([](const Arguments& a) { return a.tensor(0).select(a.integer(1), a.integer(2)); })},
      {"permute", one([](const Arguments& a) { return a.tensor(0).permute(a.shape(1)); })},
      {"transpose",
       one([](const Arguments& a) { return a.tensor(0).transpose(a.integer(1), a.integer(2)); })},
      {"expand", one([](const Arguments& a) { return a.tensor(0).expand(a.shape(1)); })},
      {"reshape", one([](const Arguments& a) { return a.tensor(0).reshape(a.shape(1)); })},
      {"squeeze", one([](const Arguments& a) {
         return a.has(1) ? a.tensor(0).squeeze(a.integer(1)) : a.tensor(0).squeeze();
       })},
      {"unsqueeze", one([](const Arguments& a) { return a.tensor(0).unsqueeze(a.integer(1)); })},
      {"flatten", one([](const Arguments& a) { return a.tensor(0).flatten(a.integer(1), a.integer(2)); })},
      {"clone", one([](const Arguments& a) { return a.tensor(0).clone(); })},
      {"contiguous", one([](const Arguments& a) { return a.tensor(0).contiguous(); })},
      {"to", one([](const Arguments& a) { return a.tensor(0).to(dtype_named(a.text(1))); })},

      {"add_", one([](const Arguments& a) { return a.tensor(0).add_(a.tensor(1), a.number(2)); })},
      {"mul_", one([](const Arguments& a) {
         return a.is_number(1) ? a.tensor(0).mul_(a.number(1)) : a.tensor(0).mul_(a.tensor(1));
       })},
      {"sub_", one([](const Arguments& a) {
         return a.is_number(1) ? a.tensor(0).sub_(a.number(1)) : a.tensor(0).sub_(a.tensor(1));
       })},
      {"div_", one([](const Arguments& a) {
         return a.is_number(1) ? a.tensor(0).div_(a.number(1)) : a.tensor(0).div_(a.tensor(1));
       })},
      {"fill_", one([](const Arguments& a) { return a.tensor(0).fill_(a.number(1)); })},
      {"zero_", one([](const Arguments& a) { return a.tensor(0).zero_(); })},
      {"copy_", one([](const Arguments& a) { return a.tensor(0).copy_(a.tensor(1)); })},

      {"full", one([](const Arguments& a) { return vox::full(a.shape(0), a.number(1), a.options(2, 3)); })},
      {"zeros_like", unary(vox::zeros_like)},
      {"ones_like", unary(vox::ones_like)},
      {"full_like", one([](const Arguments& a) { return vox::full_like(a.tensor(0), a.number(1)); })},
      {"eye", one([](const Arguments& a) { return vox::eye(a.integer(0), a.options(1, 2)); })},
      {"linspace", one([](const Arguments& a) {
         return vox::linspace(a.real(0), a.real(1), a.integer(2), a.options(3, 4));
       })},
      {"arange", one([](const Arguments& a) {
         return vox::arange(a.number(0), a.number(1), a.number(2), a.options(3, 4));
       })},
  };
  return table;
}

}  // namespace

extern "C" {

const char* vox_threads(int threads) {
  return guarded([&] { vox::set_num_threads(threads); });
}

/// A leaf with the given sizes and strides that holds a copy of `data`, host memory. Its first element lies
/// `lead` elements into its memory, so that it is no better aligned than the original.
const char* vox_make(void* data, const char* dtype_name, int64_t rank, const int64_t* sizes,
                     const int64_t* strides, int64_t lead, int cuda, Tensor** out) {
  return guarded([&] {
    const vox::DType dtype = dtype_named(dtype_name);
    const vox::Device device = device_of(cuda);
    const vox::Shape shape(sizes, sizes + rank);
    if (std::count(shape.begin(), shape.end(), 0)) {
      *out = new Tensor(vox::empty(shape, {dtype, device}));
      return;
    }
    int64_t span = 1;
    for (int64_t i = 0; i < rank; ++i) span += (sizes[i] - 1) * strides[i];
    const Tensor memory = vox::zeros({lead + span}, {dtype, device});
    memory.slice(0, lead, lead + span).copy_(borrow(data, dtype, {span}).to(device));
    if (cuda) vox::cuda::synchronize();  // `data` may be gone after this
    *out = new Tensor(vox::detail::alias(memory, lead, shape, vox::Shape(strides, strides + rank)));
  });
}

const char* vox_require_grad(Tensor* t) {
  return guarded([&] { t->set_requires_grad(); });
}

/// `sizes` and `strides` have room for 8 numbers.
const char* vox_describe(const Tensor* t, const char** dtype, int64_t* rank, int64_t* sizes,
                         int64_t* strides) {
  return guarded([&] {
    *dtype = vox::to_string(t->dtype());
    *rank = t->rank();
    std::copy(t->shape().begin(), t->shape().end(), sizes);
    std::copy(t->strides().begin(), t->strides().end(), strides);
  });
}

/// Copies the elements in row-major order to `data` in host memory.
const char* vox_read(const Tensor* t, void* data) {
  return guarded([&] { borrow(data, t->dtype(), t->shape()).copy_(t->detach().to(vox::Device::cpu())); });
}

/// Calls an op; `out` has room for `*count` handles and gets as many as the op returns.
const char* vox_call(const char* name, const VoxArgument* arguments, int64_t arguments_count, Tensor** out,
                     int64_t* count) {
  return guarded([&] {
    const auto found = ops().find(name);
    if (found == ops().end()) throw std::out_of_range(std::string("shim.cpp has no op ") + name);
    const std::vector<Tensor> results = found->second(Arguments(arguments, arguments_count));
    if (static_cast<int64_t>(results.size()) > *count) throw std::out_of_range("too many results");
    *count = static_cast<int64_t>(results.size());
    for (const Tensor& t : results) *out++ = new Tensor(t);
  });
}

/// vox::grad with create_graph and allow_unused; null for an input that no output depends on.
const char* vox_grad(Tensor* const* outputs, Tensor* const* grad_outputs, int64_t outputs_count,
                     Tensor* const* inputs, int64_t inputs_count, Tensor** out) {
  return guarded([&] {
    const auto list = [](Tensor* const* handles, int64_t count) {
      std::vector<Tensor> result;
      for (int64_t i = 0; i < count; ++i) result.push_back(*handles[i]);
      return result;
    };
    const std::vector<Tensor> gradients = vox::grad(
        list(outputs, outputs_count), list(inputs, inputs_count),
        {.grad_outputs = list(grad_outputs, outputs_count), .create_graph = true, .allow_unused = true});
    for (const Tensor& g : gradients) *out++ = g.defined() ? new Tensor(g) : nullptr;
  });
}

const char* vox_requires_grad(const Tensor* t, int* result) {
  return guarded([&] { *result = t->requires_grad(); });
}

const char* vox_free(Tensor* t) {
  return guarded([&] { delete t; });
}
}
