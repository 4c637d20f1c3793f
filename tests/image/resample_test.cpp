// Splines: recorded results of scikit-image and SciPy, from which nnU-Net's resampling is made.
#include <voxgrad/image/resample.h>

#include "tests/support/test.h"

namespace vox {
namespace {

double largest(const Tensor& x) { return abs(x).max().item(); }

const std::map<std::string, Tensor>& recorded() {
  static const auto arrays = load_npz(std::filesystem::path(testing::data_dir) / "image" / "resample.npz");
  return arrays;
}

TEST(Resample, EqualsScikitImage) {
  const Tensor x = recorded().at("x");
  for (const int64_t order : {0, 1, 3}) {
    const Tensor expected = recorded().at(str("order", order));
    EXPECT_LT(largest(resample(x, {9, 5, 6}, {.order = order}) - expected), 1e-13) << order;
    const Tensor both = stack({x.unsqueeze(0), 2 * x.unsqueeze(0)}).to(f32);  // leading dimensions, and f32
    const Tensor result = resample(both, {9, 5, 6}, {.order = order});
    EXPECT_EQ(result.dtype(), f32);
    EXPECT_LT(largest(result[1][0] - (2 * expected).to(f32)), 1e-6) << order;
  }
}

TEST(Resample, SeparateAxisEqualsNnUnet) {
  const Tensor x = recorded().at("x");
  for (const int64_t order : {0, 1}) {
    const Tensor expected = recorded().at(str("separate", order));
    ResampleOptions options{.separate_axis = 0, .separate_order = order};
    EXPECT_LT(largest(resample(x, {9, 5, 11}, options) - expected), 1e-13) << order;
    options.separate_axis = 2;  // the same with other places of the axes
    const Tensor turned = resample(x.permute({1, 2, 0}).unsqueeze(0), {5, 11, 9}, options);
    EXPECT_LT(largest(turned[0].permute({2, 0, 1}) - expected), 1e-13) << order;
  }
}

TEST(Resample, LabelsFollowTheOneHotRule) {
  const Tensor labels = recorded().at("labels");
  for (const int64_t order : {0, 1, 3}) {
    const Tensor expected = recorded().at(str("labels", order));
    const Tensor result = resample_labels(labels, {5, 11, 4}, {.order = order});
    EXPECT_EQ(result.to_vector<uint8_t>(), expected.to_vector<uint8_t>()) << order;
    EXPECT_EQ(resample_labels(labels.to(i64), {5, 11, 4}, {.order = order}).to_vector<int64_t>(),
              expected.to(i64).to_vector<int64_t>());
  }
  const Tensor thick = resample_labels(labels, {8, 7, 6}, {.order = 1, .separate_axis = 0});
  EXPECT_EQ(thick.slice(0, 0, {}, 2).to_vector<uint8_t>(), labels.to_vector<uint8_t>());
}

TEST(Resample, ClipsAndLeavesEqualSizesAlone) {
  const Tensor edge = from_vector<double>({0, 0, 0, 1, 1, 1}, {6});
  EXPECT_GT(resample(edge, {17}, {.clip = false}).max().item(), 1.01);
  EXPECT_EQ(resample(edge, {17}).max().item(), 1);
  EXPECT_EQ(resample(edge, {17}).min().item(), 0);
  EXPECT_EQ(resample(edge, {6}).to_vector<double>(), edge.to_vector<double>());
  EXPECT_LT(largest(resample(full({1}, 7), {4}) - 7), 1e-6);
}

TEST(Resample, RefusesOtherArguments) {
  const Tensor x = ones({2, 3, 4});
  EXPECT_ERRORS(DTypeError, resample(x.to(u8), {4, 4}), resample_labels(x, {4, 4}));
  EXPECT_ERRORS(ShapeError, resample(x, {}), resample(x, {4, 0}), resample(x, {4, 4, 4, 4}),
                resample(ones({3}), {4, 4}), resample(ones({0, 3}), {4}));
  EXPECT_ERRORS(ValueError, resample(x, {4, 4}, {.order = 2}), resample(x, {4, 4}, {.separate_axis = 2}),
                resample(x, {4}, {.separate_axis = 0}));
}

}  // namespace
}  // namespace vox
