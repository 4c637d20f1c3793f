#include <voxgrad/autograd/autocast_scope.h>
#include <voxgrad/autograd/record.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/ops/broadcast.h>
#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/grid_sample.h>
#include <voxgrad/ops/in_f32.h>
#include <voxgrad/ops/layer_kernels.h>
#include <voxgrad/ops/reduce.h>
#include <voxgrad/ops/shaping.h>

// Note [The grid_sample family]
//
// On each axis, the two weights of a point are linear in its coordinate, so their slopes are constants, and
// a second derivative along the same axis is 0. sample(x, grid, s) is the result differentiated along the
// axes of s.slope: these have slopes where the others have weights. All derivatives are in the family:
//
//   by x       sample_adjoint, the transpose of sample; its gradient by its operand is sample
//   by grid    of both, along axis a: the sum over channels of g * sample(x, grid, s with slope[a]), or 0
//              if s has that slope already
//
// A kernel computes the last sum for all axes at once, unless it is itself recorded.

namespace vox {

namespace {

using autograd::Gradients;
using autograd::SavedTensor;
using detail::GridSampling;

constexpr ByDevice kernel{"grid_sample", in_f32<&cpu::grid_sample>, VOX_CUDA(&cuda::grid_sample)};
constexpr ByDevice adjoint_kernel{"grid_sample", in_f32<&cpu::grid_sample_adjoint>,
                                  VOX_CUDA(&cuda::grid_sample_adjoint)};
constexpr ByDevice gradient_kernel{"grid_sample", in_f32<&cpu::grid_sample_gradient>,
                                   VOX_CUDA(&cuda::grid_sample_gradient)};

/// sample(operand, grid, s), or sample_adjoint.
template <bool adjoint>
Tensor apply(const Tensor& operand, const Tensor& grid, const GridSampling& s);

/// The gradient of the grid of sample(x, grid, s) for g, which is also that of sample_adjoint(g, grid, s) for
/// x.
Tensor grid_gradient(const Tensor& g, const Tensor& x, const Tensor& grid, const GridSampling& s) {
  if (s.nearest && !grad_enabled()) return zeros_like(grid);
  const bool is_first = !s.slope[0] && !s.slope[1] && !s.slope[2];
  if (is_first && !grad_enabled()) {
    Tensor grad = detail::empty_for("grid_sample", grid.shape(), grid.options());
    if (grad.numel() > 0)
      gradient_kernel.on(grad.device())(g.contiguous(), x.contiguous(), grid.contiguous(), s, grad);
    return grad;
  }
  const DType wide = opmath(grid.dtype());
  const Tensor wide_g = g.to(wide), wide_x = x.to(wide), wide_grid = grid.to(wide);
  std::vector<Tensor> along;
  for (int axis = 2; axis > 2 - s.axes; --axis) {
    GridSampling with_slope = s;
    with_slope.slope[axis] = true;
    const bool is_constant = s.nearest || s.slope[axis];
    along.push_back(is_constant ? detail::no_gradient(sum(wide_g, {1}))
                                : sum(wide_g * apply<false>(wide_x, wide_grid, with_slope), {1}));
  }
  return stack(along, -1).to(grid.dtype());
}

template <bool adjoint>
struct GridSampleNode final : autograd::Node {
  SavedTensor saved_operand_{this}, saved_grid_{this};
  GridSampling s_;
  const char* name() const override { return adjoint ? "grid_sample_adjoint" : "grid_sample"; }
  Gradients backward(Gradients g) override {
    const Tensor grid = saved_grid_.get();
    return {if_needed(0, [&] { return apply<!adjoint>(*g[0], grid, s_); }), if_needed(1, [&] {
              const Tensor operand = saved_operand_.get();
              return adjoint ? grid_gradient(operand, *g[0], grid, s_)
                             : grid_gradient(*g[0], operand, grid, s_);
            })};
  }
};

template <bool adjoint>
Tensor apply(const Tensor& operand, const Tensor& grid, const GridSampling& s) {
  Shape shape{s.batch, s.channels};
  for (int i = 0; i < s.axes; ++i) shape.push_back(adjoint ? s.size[3 - s.axes + i] : grid.size(1 + i));
  Tensor result = detail::empty_for("grid_sample", shape, operand.options());
  if (result.numel() > 0)
    (adjoint ? adjoint_kernel : kernel)
        .on(result.device())(operand.detach().contiguous(), grid.detach().contiguous(), s, result);
  if (auto node = autograd::record<GridSampleNode<adjoint>>({operand, grid}, result)) {
    if (node->edges()[1].node) node->saved_operand_.save(operand);
    node->saved_grid_.save(grid);
    node->s_ = s;
  }
  return result;
}

GridSampling make_sampling(const Tensor& input, const Tensor& grid, const GridSampleOptions& options) {
  const Shape &shape = input.shape(), &points = grid.shape();
  const int64_t axes = shape.rank() - 2;
  check<ShapeError>(axes == 2 || axes == 3,
                    "grid_sample: the input must be (N, C, D, H, W) or (N, C, H, W), got ", shape);
  check<ShapeError>(points.rank() == shape.rank() && points[0] == shape[0] && points[axes + 1] == axes,
                    "grid_sample: for an input of shape ", shape, " the grid must be ",
                    axes == 3 ? "(N, D', H', W', 3)" : "(N, H', W', 2)", " with the same N, got ", points);
  GridSampling s{.batch = shape[0], .channels = shape[1], .points = 1, .axes = static_cast<int>(axes)};
  constexpr int64_t most = int64_t{1} << 30;
  int64_t cells = 1;
  for (int64_t i = 0; i < axes; ++i) {
    const int64_t size = shape[2 + i];
    check<ShapeError>(size >= 1 && size <= most / cells,
                      "grid_sample: D, H and W of the input must be >= 1, with at most 2^30 cells, got ",
                      shape);
    cells *= size, s.points *= points[1 + i];
    s.size[3 - axes + i] = static_cast<int32_t>(size);
  }
  s.nearest = options.mode == GridSampleOptions::Mode::nearest;
  s.padding = static_cast<detail::GridPadding>(options.padding);
  s.align_corners = options.align_corners;
  return s;
}

/// The coordinates of the centres of n cells, along dimension `dim` of `rank`.
Tensor centres(int64_t n, bool align_corners, int64_t dim, int64_t rank, const TensorOptions& options) {
  const double first = align_corners ? (n > 1 ? -1 : 0) : -1 + 1 / static_cast<double>(n);
  Shape shape = Shape::filled(rank, 1);
  shape[dim] = n;
  return linspace(first, -first, n, options).reshape(shape);
}

}  // namespace

Tensor grid_sample(const Tensor& input, const Tensor& grid, const GridSampleOptions& options) {
  if (detail::autocast_mixes(input, grid)) return grid_sample(input.to(f32), grid.to(f32), options);
  detail::check_floating("grid_sample", "input", input);
  detail::check_floating("grid_sample", "grid", grid);
  check<DTypeError>(input.dtype() == grid.dtype(), "grid_sample: input and grid must have one dtype, got ",
                    input.dtype(), " and ", grid.dtype());
  detail::check_same_device("grid_sample", input, grid);
  return apply<false>(input, grid, make_sampling(input, grid, options));
}

Tensor affine_grid(const Tensor& theta, const Shape& size, Flag align_corners) {
  detail::check_floating("affine_grid", "theta", theta);
  const int64_t axes = size.rank() - 2;
  check<ShapeError>(axes == 2 || axes == 3,
                    "affine_grid: the size must be (N, C, D, H, W) or (N, C, H, W), got ", size);
  check<ShapeError>(theta.shape() == Shape({size[0], axes, axes + 1}), "affine_grid: for the size ", size,
                    " theta must be ", Shape({size[0], axes, axes + 1}), ", got ", theta.shape());
  for (int64_t i = 2; i < size.rank(); ++i)
    check<ShapeError>(size[i] >= 1, "affine_grid: D, H and W must be >= 1, got ", size);
  return in_the_name_of("affine_grid", [&] {
    const Tensor maps = theta.to(opmath(theta.dtype()));
    Shape column_shape = Shape::filled(size.rank(), 1);
    column_shape[0] = size[0], column_shape[axes + 1] = axes;
    const auto column = [&](int64_t k) { return maps.select(2, k).reshape(column_shape); };
    Tensor grid = column(axes);
    for (int64_t k = 0; k < axes; ++k)  // W first: all but the last sum are small
      grid = grid +
             column(k) * centres(size[axes + 1 - k], align_corners, axes - k, size.rank(), maps.options());
    return grid.to(theta.dtype());
  });
}

}  // namespace vox
