#include "ops.h"

namespace vox::capi {
namespace {

using Tensors = std::vector<Tensor>;

Tensors results(const Tensor& t) { return {t}; }
Tensors results(const ValuesAndIndices& both) { return {both.values, both.indices}; }
Tensors results(const VarMean& both) { return {both.var, both.mean}; }
Tensors results(const Tensors& list) { return list; }

/// f, with parameters of the types P.
template <class... P, class F>
Op with_parameters(F f) {
  return [f](const Values& values) {
    Reader reader(values);
    const std::tuple<P...> parameters{reader.next<P>()...};
    reader.finish();
    return results(std::apply(f, parameters));
  };
}

template <class R, class... P>
Op op_of(R (*f)(P...)) {
  return with_parameters<std::decay_t<P>...>(f);
}
template <class R, class... P>
Op op_of(R (Tensor::*f)(P...) const) {
  return with_parameters<Tensor, std::decay_t<P>...>(std::mem_fn(f));
}
template <class R, class... P>
Op op_of(R (Tensor::*f)(P...)) {
  return with_parameters<Tensor, std::decay_t<P>...>([f](Tensor t, const P&... p) { return (t.*f)(p...); });
}

bool is_number(const Values& values, size_t i) { return i < values.size() && values[i].get<Scalar>(); }

/// An op of two operands, each a tensor or, where there is such an overload, a number.
template <class F>
Op binary(F f) {
  return [f](const Values& values) {
    const bool first = is_number(values, 0), second = is_number(values, 1);
    if (!first && !second) return with_parameters<Tensor, Tensor>(f)(values);
    if constexpr (std::is_invocable_v<F, Tensor, Scalar>)
      if (!first) return with_parameters<Tensor, Scalar>(f)(values);
    if constexpr (std::is_invocable_v<F, Scalar, Tensor>)
      if (!second) return with_parameters<Scalar, Tensor>(f)(values);
    throw Inexpressible("no overload with a number there");
  };
}

Op either(size_t place, Op with_number, Op otherwise) {
  return [=](const Values& values) { return (is_number(values, place) ? with_number : otherwise)(values); };
}

// ---- Overloads, with one name each -----------------------------------------------------------------------

using Dims = const Shape&;
ValuesAndIndices max_along(const Tensor& x, int64_t dim, bool keepdim) { return max(x, dim, keepdim); }
ValuesAndIndices min_along(const Tensor& x, int64_t dim, bool keepdim) { return min(x, dim, keepdim); }
Op extremum(Tensor (*of_dims)(const Tensor&, Dims, Flag),
            ValuesAndIndices (*along)(const Tensor&, int64_t, bool)) {
  return either(1, op_of(along), op_of(of_dims));
}

const Op where_of =
    either(1, op_of(+[](const Tensor& c, Scalar a, const Tensor& b) { return where(c, a, b); }),
           either(2, op_of(+[](const Tensor& c, const Tensor& a, Scalar b) { return where(c, a, b); }),
                  op_of(+[](const Tensor& c, const Tensor& a, const Tensor& b) { return where(c, a, b); })));

const Op clamp_by_numbers = op_of(+[](const Tensor& x, const ClampOptions& o) { return clamp(x, o); });
const Op clamp_of = either(
    1, clamp_by_numbers,
    either(2, clamp_by_numbers,
           op_of(+[](const Tensor& x, const Tensor& min, const Tensor& max) { return clamp(x, min, max); })));

const Op scatter_of = either(3, op_of(+[](const Tensor& x, Int dim, const Tensor& i, Scalar value) {
                               return scatter(x, dim, i, value);
                             }),
                             op_of(+[](const Tensor& x, Int dim, const Tensor& i, const Tensor& src) {
                               return scatter(x, dim, i, src);
                             }));

Tensor median_of_all(const Tensor& x) { return median(x); }
ValuesAndIndices median_along(const Tensor& x, Int dim, Flag keepdim) { return median(x, dim, keepdim); }

Tensor cross_entropy_of(const Tensor& x, const Tensor& target, const CrossEntropyOptions& options) {
  return cross_entropy(x, target, options);
}

using Padding = const std::vector<int64_t>&;
Tensor pad_by_number(const Tensor& x, Padding padding, Scalar value) { return pad(x, padding, value); }
Tensor pad_by_mode(const Tensor& x, Padding padding, PadMode mode) { return pad(x, padding, mode); }

Tensor squeeze_of(const Tensor& x, int64_t dim) { return x.squeeze(dim); }
Tensor squeeze_all(const Tensor& x) { return x.squeeze(); }
Tensor add_number_(const Tensor& x, Scalar value) { return Tensor(x).add_(value); }
Tensor add_tensor_(const Tensor& x, const Tensor& other, Scalar alpha) {
  return Tensor(x).add_(other, alpha);
}
Tensor arange_of(Scalar start, Scalar end, Scalar step, TensorOptions options) {
  return arange(start, end, step, options);
}

/// Parameters that PyTorch passes to the function are members of the layer here; the caller brings its own.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check<Inexpressible>(weight.rank() == 2, "a weight of ", weight.rank(), " dimensions");
  nn::Linear layer({.in_features = weight.size(1),
                    .out_features = weight.size(0),
                    .bias = bias.defined(),
                    .tensor = weight.options()});
  layer.weight = weight;
  layer.bias = bias;
  return layer.forward(x);
}

Tensor to(const Tensor& x, const std::string& what) {
  if (what == "cpu" || what == "cuda") return x.to(what == "cpu" ? Device::cpu() : Device::cuda());
  DType dtype;
  read(Value(what.c_str()), dtype);
  return x.to(dtype);
}

// ---- The table: a name in one of these lists, or a line in ops() -----------------------------------------

// clang-format off
#define VOX_FUNCTIONS(X) \
  X(neg) X(abs) X(sign) X(floor) X(ceil) X(round) X(sin) X(cos) X(exp) X(expm1) X(log) X(log1p) X(sqrt) \
  X(rsqrt) X(erf) X(tanh) X(sigmoid) X(relu) X(relu6) X(leaky_relu) X(elu) X(gelu) X(gelu_tanh) X(silu) \
  X(mish) X(softplus) X(hardtanh) X(hardsigmoid) X(hardswish) X(isnan) X(isinf) X(isfinite) \
  X(logical_not) X(logical_and) X(logical_or) X(logical_xor) X(masked_fill) X(prelu) \
  X(sum) X(mean) X(prod) X(any) X(all) X(argmax) X(argmin) X(logsumexp) X(norm) X(var) X(std) X(var_mean) \
  X(sum_to) X(softmax) X(log_softmax) \
  X(matmul) X(bmm) X(scaled_dot_product_attention) X(conv1d) X(conv2d) X(conv3d) X(conv3d_weight_grad) X(conv_transpose1d) \
  X(conv_transpose2d) X(conv_transpose3d) \
  X(batch_norm) X(instance_norm) X(group_norm) X(layer_norm) \
  X(max_pool1d) X(max_pool2d) X(max_pool3d) X(avg_pool1d) X(avg_pool2d) X(avg_pool3d) \
  X(adaptive_max_pool1d) X(adaptive_max_pool2d) X(adaptive_max_pool3d) X(adaptive_avg_pool1d) \
  X(adaptive_avg_pool2d) X(adaptive_avg_pool3d) X(interpolate) X(grid_sample) X(affine_grid) \
  X(max_pool1d_with_indices) X(max_pool2d_with_indices) X(max_pool3d_with_indices) \
  X(max_unpool1d) X(max_unpool2d) X(max_unpool3d) \
  X(mse_loss) X(l1_loss) X(smooth_l1_loss) X(huber_loss) X(soft_dice_loss) \
  X(binary_cross_entropy) X(binary_cross_entropy_with_logits) X(dice_loss) X(focal_loss) \
  X(cat) X(stack) X(flip) X(roll) X(one_hot) X(repeat) X(tile) X(meshgrid) X(pixel_shuffle) \
  X(pixel_unshuffle) X(einsum) X(index_select) X(embedding) X(gather) X(scatter_add) X(nonzero) \
  X(cumsum) X(cumprod) X(sort) X(argsort) X(topk) X(quantile) \
  X(full) X(full_like) X(zeros_like) X(ones_like) X(eye) X(linspace)
#define VOX_METHODS(X) \
  X(slice) X(select) X(permute) X(transpose) X(expand) X(reshape) X(unsqueeze) X(flatten) \
  X(clone) X(contiguous) X(detach) X(fill_) X(zero_) X(copy_)
#define VOX_BINARIES(X) \
  X(add) X(sub) X(mul) X(div) X(pow) X(maximum) X(minimum) X(eq) X(ne) X(lt) X(le) X(gt) X(ge)

#define VOX_FUNCTION(op) {#op, op_of(&vox::op)},
#define VOX_METHOD(op) {#op, op_of(&Tensor::op)},
#define VOX_BINARY(op) \
  {#op, binary([](const auto& a, const auto& b) requires requires { vox::op(a, b); } { return vox::op(a, b); })},
#define VOX_IN_PLACE(op) \
  {#op, binary([](Tensor a, const auto& b) requires requires { a.op(b); } { return a.op(b); })},
// clang-format on

}  // namespace

const std::map<std::string, Op>& ops() {
  // clang-format off
  static const std::map<std::string, Op> table = {
      VOX_FUNCTIONS(VOX_FUNCTION)
      VOX_METHODS(VOX_METHOD)
      VOX_BINARIES(VOX_BINARY)
      VOX_IN_PLACE(sub_)
      VOX_IN_PLACE(mul_)
      VOX_IN_PLACE(div_)
      {"where", where_of},
      {"clamp", clamp_of},
      {"max", extremum(max, max_along)},
      {"min", extremum(min, min_along)},
      {"linear", op_of(linear)},
      {"cross_entropy", op_of(cross_entropy_of)},
      {"scatter", scatter_of},
      {"median", either(1, op_of(median_along), op_of(median_of_all))},
      {"pad", either(2, op_of(pad_by_number), op_of(pad_by_mode))},
      {"squeeze", either(1, op_of(squeeze_of), op_of(squeeze_all))},
      {"to", op_of(to)},
      {"add_", either(1, op_of(add_number_), op_of(add_tensor_))},
      {"arange", op_of(arange_of)},
  };
  // clang-format on
  return table;
}

}  // namespace vox::capi
