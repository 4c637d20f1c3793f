#pragma once

#include <memory>
#include <optional>
#include <utility>

#include <voxgrad/nn/conv.h>
#include <voxgrad/nn/linear.h>

// Layers whose weight is computed in each call from other parameters, as torch.nn.utils.weight_norm and
// spectral_norm do it, with their names: `nn::WeightNorm<nn::Conv3d> conv{nn::Conv3d({...})};`. They take the
// arguments of the layer, and a layer with the members `weight` and, if it likes, `bias`.

namespace vox::nn {

/// A layer of class L without a weight of its own.
template <class L>
class Reparametrized : public Module {
 public:
  VOXGRAD_MODULE()
  template <class... Inputs>
  requires requires(L& l, Inputs&&... inputs) { l.forward(std::forward<Inputs>(inputs)...); }
  Tensor forward(Inputs&&... inputs) {
    layer_->weight = make_weight();
    return layer_->forward(std::forward<Inputs>(inputs)...);
  }
  int64_t multiply_adds(const Tensor& input, const Tensor& output) const override {
    return layer_->multiply_adds(input, output);
  }

  Tensor bias;

 protected:
  /// Takes the layer's weight, and its bias as a parameter of this module.
  explicit Reparametrized(L layer)
      : layer_(std::make_unique<L>(std::move(layer))), start_(layer_->weight.detach()) {
    if constexpr (requires { layer_->bias; }) bias = register_parameter("bias", layer_->bias);
  }
  std::string describe_as(const char* name) const { return str(name, "(", layer_->describe(), ")"); }
  virtual Tensor make_weight() = 0;

  // The layer is in memory of its own and no child: of its parameters only the bias is one.
  std::unique_ptr<L> layer_;
  Tensor start_;  // the weight that the layer was made with
};

namespace detail {
/// The L2 norm of each slice of v along `dim`, with v's rank; that of all of v without a dim, of rank 0.
Tensor norm_except(const Tensor& v, std::optional<int64_t> dim);
/// weight_v * weight_g / norm_except(weight_v), rounded once.
Tensor normalized_weight(const Tensor& g, const Tensor& v, std::optional<int64_t> dim);
/// weight / sigma, where sigma, the largest singular value, is u^T weight v. `iterations` steps of the power
/// method improve u and v first.
Tensor spectral_weight(const Tensor& weight, Tensor& u, Tensor& v, int64_t dim, int64_t iterations,
                       double eps);
/// A random vector of length 1 for each side of the matrix of `weight`.
std::pair<Tensor, Tensor> spectral_vectors(const Tensor& weight, int64_t dim);
}  // namespace detail

struct WeightNormOptions {
  vox::detail::ByName by_name{};
  std::optional<int64_t> dim = 0;  ///< each slice along it has a length of its own; none: one for the weight
};
/// weight = weight_v * weight_g / |weight_v| (Salimans & Kingma, arXiv 1602.07868): direction and length are
/// trained apart. It starts with the layer's weight. State: bias, weight_g, weight_v.
template <class L>
class WeightNorm final : public Reparametrized<L> {
 public:
  explicit WeightNorm(L layer, const WeightNormOptions& o = {})
      : Reparametrized<L>(std::move(layer)), options(o) {
    weight_g = this->register_parameter("weight_g", detail::norm_except(this->start_, o.dim));
    weight_v = this->register_parameter("weight_v", this->start_);
  }
  std::string describe() const override { return this->describe_as("WeightNorm"); }

  WeightNormOptions options;
  Tensor weight_g, weight_v;

 private:
  Tensor make_weight() override { return detail::normalized_weight(weight_g, weight_v, options.dim); }
};

struct SpectralNormOptions {
  vox::detail::ByName by_name{};
  int64_t n_power_iterations = 1;  ///< in each call in training
  double eps = 1e-12;
  std::optional<int64_t> dim = {};  ///< the rows of the matrix; 0, or 1 for transposed convolutions
};
/// weight = weight_orig / (its largest singular value), as a matrix of its slices along `dim` (Miyato et al.,
/// arXiv 1802.05957). The singular vectors are the buffers weight_u and weight_v; evaluation keeps them.
/// State: bias, weight_orig, weight_u, weight_v.
template <class L>
class SpectralNorm final : public Reparametrized<L> {
 public:
  explicit SpectralNorm(L layer, const SpectralNormOptions& o = {})
      : Reparametrized<L>(std::move(layer)), options(o) {
    constexpr bool is_transposed = requires { this->layer_->options.output_padding; };
    options.dim = o.dim.value_or(is_transposed ? 1 : 0);
    weight_orig = this->register_parameter("weight_orig", this->start_);
    const auto [u, v] = detail::spectral_vectors(this->start_, *options.dim);
    weight_u = this->register_buffer("weight_u", u);
    weight_v = this->register_buffer("weight_v", v);
  }
  std::string describe() const override { return this->describe_as("SpectralNorm"); }

  SpectralNormOptions options;
  Tensor weight_orig, weight_u, weight_v;

 private:
  Tensor make_weight() override {
    return detail::spectral_weight(weight_orig, weight_u, weight_v, *options.dim,
                                   this->is_training() ? options.n_power_iterations : 0, options.eps);
  }
};

}  // namespace vox::nn
