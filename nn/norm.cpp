#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/nn/layer.h>
#include <voxgrad/nn/norm.h>
#include <voxgrad/ops/norm.h>

#include <cmath>

namespace vox::nn {

namespace {

template <int dims>
constexpr const char* batch_norm_name = dims == 1   ? "nn::BatchNorm1d"
                                        : dims == 2 ? "nn::BatchNorm2d"
                                                    : "nn::BatchNorm3d";
template <int dims>
constexpr const char* instance_norm_name = dims == 1   ? "nn::InstanceNorm1d"
                                           : dims == 2 ? "nn::InstanceNorm2d"
                                                       : "nn::InstanceNorm3d";
constexpr const char* axes_of(int dims) { return dims == 1 ? "L" : dims == 2 ? "H, W" : "D, H, W"; }

}  // namespace

Norm::Norm(const char* layer, double eps, Activation following, TensorOptions tensor)
    : activation(following), layer_(layer), tensor_(tensor) {
  check<ValueError>(eps >= 0, layer, ": eps must be >= 0, got ", eps);
  detail::check_dtype(layer, tensor.dtype);
}

void Norm::register_affine(const Shape& shape, bool has_bias) {
  weight = register_parameter("weight", ones(shape, tensor_));
  if (has_bias) bias = register_parameter("bias", zeros(shape, tensor_));
}

std::string Norm::describe_as(const std::string& sizes, double eps, bool usually_affine) const {
  const double slope = activation.negative_slope;
  const std::string following = activation == Activation::none()   ? ""
                                : activation == Activation::relu() ? ", relu"
                                                                   : str(", leaky_relu ", slope);
  return str(layer_ + std::string_view("nn::").size(), "(", sizes, ", eps=", eps, following,
             detail::option("affine", weight.defined(), usually_affine), ")");
}

TrackingNorm::TrackingNorm(const char* layer, int64_t num_features, double eps, double momentum, bool affine,
                           bool track_running_stats, Activation following, TensorOptions tensor)
    : Norm(layer, eps, following, tensor) {
  check<ValueError>(num_features > 0, layer, ": num_features must be positive, got ", num_features);
  check<ValueError>(std::isfinite(momentum), layer, ": momentum must be finite, got ", momentum);
  if (affine) register_affine({num_features});
  if (!track_running_stats) return;
  running_mean = register_buffer("running_mean", zeros({num_features}, tensor));
  running_var = register_buffer("running_var", ones({num_features}, tensor));
  num_batches_tracked =
      register_buffer("num_batches_tracked", zeros({}, {.dtype = i64, .device = tensor.device}));
}

void TrackingNorm::check_shape(const Tensor& input, int64_t num_features, int dims) const {
  vox::detail::check_defined(layer_, "input", input);
  const int64_t rank = input.rank();
  check<ShapeError>((rank == dims + 2 || (dims == 1 && rank == 2)) && input.size(1) == num_features, layer_,
                    ": the input must be (N, ", num_features, ", ", axes_of(dims), ")",
                    dims == 1 ? " or without L" : "", ", got ", input.shape());
}

// ---- Batch norm -------------------------------------------------------------------------------------------

template <int dims>
BatchNorm<dims>::BatchNorm(const Options& o)
    : TrackingNorm(batch_norm_name<dims>, o.num_features, o.eps, o.momentum.value_or(0), o.affine,
                   o.track_running_stats, o.activation, o.tensor),
      options(o) {}

template <int dims>
Tensor BatchNorm<dims>::normalize(const Tensor& input, Activation following) {
  check_shape(input, options.num_features, dims);
  const bool tracks = is_training() && running_mean.defined();
  double momentum = options.momentum.value_or(0);
  if (tracks && !options.momentum)
    momentum = 1 / static_cast<double>(num_batches_tracked.item<int64_t>() + 1);
  const bool uses_running = tracks || !uses_batch();
  const Tensor y = vox::detail::batch_norm(
      layer_, input, uses_running ? running_mean : Tensor(), uses_running ? running_var : Tensor(), weight,
      bias, {.training = uses_batch(), .momentum = momentum, .eps = options.eps, .activation = following});
  if (tracks) {
    const auto guard = no_grad();
    num_batches_tracked.add_(1);
  }
  return y;
}

// ---- Instance norm ----------------------------------------------------------------------------------------

template <int dims>
InstanceNorm<dims>::InstanceNorm(const Options& o)
    : TrackingNorm(instance_norm_name<dims>, o.num_features, o.eps, o.momentum, o.affine,
                   o.track_running_stats, o.activation, o.tensor),
      options(o) {}

template <int dims>
Tensor InstanceNorm<dims>::normalize(const Tensor& input, Activation following) {
  vox::detail::check_defined(layer_, "input", input);
  const int64_t rank = input.rank();
  check<ShapeError>(
      (rank == dims + 2 || rank == dims + 1) && input.size(rank - dims - 1) == options.num_features, layer_,
      ": the input must be (N, ", options.num_features, ", ", axes_of(dims), "), or without N, got ",
      input.shape());
  const Tensor batch = rank == dims + 1 ? input.unsqueeze(0) : input;
  const Tensor y = vox::detail::instance_norm(layer_, batch, running_mean, running_var, weight, bias,
                                              {.use_input_stats = uses_batch(),
                                               .momentum = options.momentum,
                                               .eps = options.eps,
                                               .activation = following});
  return rank == dims + 1 ? y.squeeze(0) : y;
}

template class BatchNorm<1>;
template class BatchNorm<2>;
template class BatchNorm<3>;
template class InstanceNorm<1>;
template class InstanceNorm<2>;
template class InstanceNorm<3>;

// ---- Group norm and layer norm ----------------------------------------------------------------------------

GroupNorm::GroupNorm(const Options& o) : Norm("nn::GroupNorm", o.eps, o.activation, o.tensor), options(o) {
  check<ValueError>(o.num_groups > 0 && o.num_channels > 0 && o.num_channels % o.num_groups == 0, layer_,
                    ": num_groups and num_channels must be positive, and num_channels divisible by "
                    "num_groups, got ",
                    o.num_groups, " and ", o.num_channels);
  if (o.affine) register_affine({o.num_channels});
}

Tensor GroupNorm::normalize(const Tensor& input, Activation following) {
  vox::detail::check_defined(layer_, "input", input);
  check<ShapeError>(input.rank() >= 2 && input.size(1) == options.num_channels, layer_,
                    ": the input must be (N, ", options.num_channels, ", ...), got ", input.shape());
  return vox::detail::group_norm(layer_, input, options.num_groups, weight, bias, options.eps, following);
}

LayerNorm::LayerNorm(const Options& o) : Norm("nn::LayerNorm", o.eps, o.activation, o.tensor), options(o) {
  check<ShapeError>(o.normalized_shape.rank() > 0, layer_,
                    ": normalized_shape must name at least one dimension");
  if (o.elementwise_affine) register_affine(o.normalized_shape, o.bias);
}

Tensor LayerNorm::normalize(const Tensor& input, Activation following) {
  return vox::detail::layer_norm(layer_, input, options.normalized_shape, weight, bias, options.eps,
                                 following);
}

}  // namespace vox::nn
