#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/dist/dist.h>
#include <voxgrad/dist/sync_batch_norm.h>
#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/norm.h>
#include <voxgrad/ops/shaping.h>

namespace vox::dist {

namespace {

template <int dims>
constexpr const char* layer_name = dims == 1   ? "dist::SyncBatchNorm1d"
                                   : dims == 2 ? "dist::SyncBatchNorm2d"
                                               : "dist::SyncBatchNorm3d";

/// Sums over all ranks, in f64, so that the number and order of the ranks hardly affect the result.
struct Sums {
  Tensor of_channels, count;
};
Sums sum_over_ranks(const Tensor& per_channel, int64_t count) {
  const Tensor here = full({1}, static_cast<double>(count), {.dtype = f64, .device = per_channel.device()});
  const Tensor all = all_reduce(cat({per_channel.to(f64), here}, 0));
  const int64_t channels = per_channel.numel();
  return {all.slice(0, 0, channels), all.slice(0, channels, channels + 1)};
}

}  // namespace

template <int dims>
SyncBatchNorm<dims>::SyncBatchNorm(const Options& o)
    : TrackingNorm(layer_name<dims>, o.num_features, o.eps, o.momentum.value_or(0), o.affine,
                   o.track_running_stats, o.activation, o.tensor),
      options(o) {}

template <int dims>
Tensor SyncBatchNorm<dims>::normalize(const Tensor& input, Activation following) {
  check_shape(input, options.num_features, dims);
  const int64_t rank = input.rank(), channels = options.num_features;
  if (!uses_batch())
    return vox::detail::batch_norm(layer_, input, running_mean, running_var, weight, bias,
                                   {.eps = options.eps, .activation = following});

  const Tensor x = input.to(opmath(input.dtype()));
  Shape all_but_channels, of_channels = Shape::filled(rank, 1);
  for (int64_t i = 0; i < rank; ++i) {
    if (i != 1) all_but_channels.push_back(i);
  }
  of_channels[1] = channels;
  const auto spread = [&](const Tensor& t) { return t.to(x.dtype()).reshape(of_channels); };

  const auto [sum, count] = sum_over_ranks(x.sum(all_but_channels), x.numel() / channels);
  if (x.numel() <= channels) {
    const double elements = count.template item<double>();
    check<ShapeError>(elements != 1, layer_,
                      ": the batches of all ranks have one element for each channel, which has no variance");
    if (elements == 0)
      return vox::detail::batch_norm(layer_, input, {}, {}, weight, bias,
                                     {.training = true, .eps = options.eps, .activation = following});
  }
  const Tensor mean = sum / count;
  const Tensor centred = x - spread(mean);
  const Tensor variance = sum_over_ranks((centred * centred).sum(all_but_channels), 0).of_channels / count;
  Tensor y = centred * spread(rsqrt(variance + options.eps));
  if (weight.defined()) y = y * spread(weight);
  if (bias.defined()) y = y + spread(bias);
  if (following != Activation::none()) y = leaky_relu(y, following.negative_slope);

  if (is_training() && running_mean.defined()) {
    const auto guard = no_grad();
    num_batches_tracked.add_(1);
    const double m =
        options.momentum ? *options.momentum : 1 / static_cast<double>(num_batches_tracked.item<int64_t>());
    const auto update = [&](Tensor& running, const Tensor& batch) {
      running.copy_(running.to(f64) * (1 - m) + batch * m);
    };
    update(running_mean, mean);
    update(running_var, variance * (count / (count - 1)));  // the unbiased estimate
  }
  return y.to(input.dtype());
}

template class SyncBatchNorm<1>;
template class SyncBatchNorm<2>;
template class SyncBatchNorm<3>;

}  // namespace vox::dist
