#include <voxgrad/ops/conv3d_recorded.h>

#include "tests/support/conv3d.h"
#include "tests/support/test.h"

namespace vox {
namespace {

class Conv3dGradient : public DeviceTest {
 protected:
  static Tensor leaf(const Shape& shape, uint64_t seed) {
    return integer_tensor(shape, seed, f64, device()).set_requires_grad();
  }
};
INSTANTIATE_TEST_SUITE_P(, Conv3dGradient, devices(), device_name);

// R1: a leaf's gradient is the same whichever other leaves need one.
TEST_P(Conv3dGradient, EachLeafAloneOrTogether) {
  for (const TransposeCase& c : awkward_cases()) {
    const Conv3dGeometry g = c.geometry();
    const reference::Conv3d r = reference_of(g);
    const Values x = integers(r.small_numel(), 1), w = integers(r.weight_numel(), 2);
    const Values b = integers(c.out_channels, 3), gy = integers(r.big_numel(), 4);
    for (int wanted = 1; wanted < 8; ++wanted) {
      for (const bool bias : {true, false}) {
        if (wanted == 4 && !bias) continue;
        SCOPED_TRACE(str(c.name, " wanted ", wanted, " bias ", bias));
        Tensor xt = tensor(x, g.small_shape(), f64, device());
        Tensor wt = tensor(w, g.weight_shape(), f64, device());
        Tensor bt = bias ? tensor(b, {c.out_channels}, f64, device()) : Tensor();
        xt.set_requires_grad(wanted & 1), wt.set_requires_grad(wanted & 2);
        if (bias) bt.set_requires_grad(wanted & 4);
        Tensor y = conv_transpose3d(xt, wt, bt, c.options());
        EXPECT_EQ(values(y), reference::conv_transpose3d(r, x, w, bias ? b : Values()));
        y.backward(tensor(gy, y.shape(), f64, device()));
        ASSERT_EQ(xt.grad().defined(), (wanted & 1) != 0);
        ASSERT_EQ(wt.grad().defined(), (wanted & 2) != 0);
        if (wanted & 1) {
          EXPECT_EQ(values(xt.grad()), reference::conv3d(r, gy, w));
        }
        if (wanted & 2) {
          EXPECT_EQ(values(wt.grad()), reference::weight_grad(r, gy, x));
        }
        if (bias && (wanted & 4)) {
          EXPECT_EQ(values(bt.grad()), reference::bias_grad(gy, c.batch, c.out_channels, r.big_cells()));
        }
      }
    }
  }
}

TEST_P(Conv3dGradient, PublicWeightGradIsThatOfConv3d) {
  Tensor x = leaf({2, 4, 5, 6, 7}, 1), w = leaf({6, 2, 2, 3, 1}, 2);
  const Conv3dOptions options{.stride = {2, 1, 3}, .padding = {1, 0, 0}, .dilation = {1, 2, 1}, .groups = 2};
  Tensor y = conv3d(x, w, {}, options);
  const Tensor gy = integer_tensor(y.shape(), 3, f64, device());
  y.backward(gy);
  EXPECT_EQ(values(conv3d_weight_grad(x, gy, {2, 3, 1}, options)), values(w.grad()));
}

// Sizes do not determine each other: with output_padding >= stride (dilation > stride) the ordinary formula
// gives one cell too many.
TEST_P(Conv3dGradient, GeometryTravelsThroughTheSecondOrder) {
  Tensor x = leaf({1, 1, 1, 1, 3}, 1), w = leaf({1, 1, 1, 1, 2}, 2);
  const Tensor y = conv_transpose3d(x, w, {}, {.output_padding = {0, 0, 1}, .dilation = {1, 1, 2}});
  ASSERT_EQ(y.shape(), (Shape{1, 1, 1, 1, 6}));
  const Tensor first = grad({(y * y).sum()}, {x}, {.create_graph = true})[0];
  EXPECT_EQ(first.shape(), x.shape());
  const auto second = grad({first.sum()}, {x, w});
  EXPECT_EQ(second[0].shape(), x.shape());
  EXPECT_EQ(second[1].shape(), w.shape());
}

// ---- Against central differences, to second order --------------------------------------------------------

Tensor real_leaf(const Shape& shape, uint64_t seed, Device device) {
  Generator generator(seed);
  return randn(shape, {.dtype = f64}, generator).to(device).set_requires_grad();
}

TEST_P(Conv3dGradient, GradcheckOfAllThree) {
  for (const TransposeCase& c : awkward_cases()) {
    SCOPED_TRACE(c.name);
    const Conv3dGeometry g = c.geometry();
    const Tensor big = real_leaf(g.big_shape(), 1, device()), small = real_leaf(g.small_shape(), 2, device()),
                 w = real_leaf(g.weight_shape(), 3, device()),
                 of_big = real_leaf({g.big_channels}, 4, device()),
                 of_small = real_leaf({g.small_channels}, 5, device());
    expect_gradients([&](const auto& t) { return conv_transpose3d(t[0], t[1], t[2], c.options()); },
                     {small, w, of_big}, "conv_transpose3d");
    expect_gradients([&](const auto& t) { return detail::conv3d(t[0], t[1], t[2], g); }, {big, w, of_small},
                     "conv3d");
    expect_gradients([&](const auto& t) { return detail::conv3d_weight_grad(t[0], t[1], g); }, {big, small},
                     "conv3d_weight_grad");
    for (const Grid bias_of : {Grid::big, Grid::small}) {
      // Both outputs, and each alone: the gradient of the other one is then absent.
      for (int use = 1; use < 4; ++use) {
        const auto fused = [&](const std::vector<Tensor>& t) {
          const auto grads = detail::weight_bias_grad(t[0], t[1], g, bias_of);
          if (use == 1) return grads.weight.sum();
          if (use == 2) return (grads.bias * grads.bias).sum() + 0.0 * (t[0].sum() + t[1].sum());
          return grads.weight.sum() * grads.bias.sum();
        };
        EXPECT_TRUE(autograd::gradcheck(fused, {big, small}));
      }
    }
  }
}

TEST_P(Conv3dGradient, ThirdOrder) {
  Tensor x = leaf({1, 1, 1, 1, 2}, 1);
  Tensor w = tensor({2, 3}, {1, 1, 1, 1, 2}, f64, device()).set_requires_grad();
  // z = sum of y^3, y = convT(x, w): the third derivative along ones, by hand.
  const Tensor y = conv_transpose3d(x, w);
  const Tensor g1 = grad({(y * y * y).sum()}, {x}, {.create_graph = true})[0];
  const Tensor g2 = grad({g1.sum()}, {x}, {.create_graph = true})[0];
  const Tensor g3 = grad({g2.sum()}, {x})[0];
  // u = convT(ones, w) = (2, 5, 3); g3 = conv(6 * u * u, w) = (2*24 + 3*150, 2*150 + 3*54).
  EXPECT_EQ(values(g3), (Values{498, 462}));
}

}  // namespace
}  // namespace vox
