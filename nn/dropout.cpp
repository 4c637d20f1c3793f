#include <voxgrad/core/factories.h>
#include <voxgrad/nn/dropout.h>
#include <voxgrad/ops/elementwise.h>

namespace vox::nn {

namespace {
template <int axes>
constexpr const char* layer =
    std::array{"nn::Dropout", "nn::Dropout1d", "nn::Dropout2d", "nn::Dropout3d"}[axes];
}

template <int axes>
BasicDropout<axes>::BasicDropout(const Options& o) : options(o) {
  check<ValueError>(o.p >= 0 && o.p <= 1, layer<axes>, ": p must be in [0, 1], got ", o.p);
}

template <int axes>
Tensor BasicDropout<axes>::forward(const Tensor& input) {
  vox::detail::check_floating(layer<axes>, "input", input);
  check<ShapeError>(axes == 0 || input.rank() == axes + 1 || input.rank() == axes + 2, layer<axes>,
                    ": the input must have ", axes, " axes after (N, C) or (C), got shape ", input.shape());
  const double p = options.p;
  if (!is_training() || p == 0) return input;
  if (p == 1) return input * 0;
  Shape shape = input.shape();
  for (int64_t axis = shape.rank() - axes; axis < shape.rank(); ++axis) shape[axis] = 1;
  const Tensor kept = ge(rand(shape, {.device = input.device()}), p);
  const DType wide = opmath(input.dtype());  // 16-bit numbers are rounded once
  return (input.to(wide) * (kept.to(wide) * (1 / (1 - p)))).to(input.dtype());
}

template <int axes>
std::string BasicDropout<axes>::describe() const {
  return str(layer<axes> + std::string_view("nn::").size(), "(", options.p, ")");
}

template class BasicDropout<0>;
template class BasicDropout<1>;
template class BasicDropout<2>;
template class BasicDropout<3>;

}  // namespace vox::nn
