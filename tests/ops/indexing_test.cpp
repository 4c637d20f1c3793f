#include "tests/support/test.h"

// Indexing, sorting, scans and einsum, on values computed by hand. Layouts, dtypes and gradients are tested
// by the catalogue.

namespace vox {
namespace {

class Indexing : public DeviceTest {
 protected:
  /// The gradient of x for an output gradient of 1, 2, 3, ...
  template <class F>
  static Doubles gradient(const Tensor& x, F f) {
    const Tensor leaf = x.clone().set_requires_grad(), y = f(leaf);
    return values(grad({y}, {leaf}, {.grad_outputs = {counting(y.shape()) + 1}})[0]);
  }
};
INSTANTIATE_TEST_SUITE_P(, Indexing, devices(), device_name);

TEST_P(Indexing, GatherTakesElements) {
  const Tensor x = counting({2, 3}), index = ints({2, 0, 0, 1}, {2, 2});
  EXPECT_EQ(values(gather(x, 1, index)), (Doubles{2, 0, 3, 4}));
  EXPECT_EQ(values(gather(x, -2, ints({1, 0, 1}, {1, 3}))), (Doubles{3, 1, 5}));
  EXPECT_EQ(values(gather(counting({}), 0, ints({0, 0}, {2}).select(0, 1))), (Doubles{0}));
  EXPECT_EQ(gather(x, 0, ints({}, {0, 3})).shape(), (Shape{0, 3}));
  EXPECT_EQ(gradient(x,
                     [&](const Tensor& t) {
                       return gather(t, 1, ints({2, 2, 0, 1}, {2, 2}));
                     }),
            (Doubles{0, 0, 3, 3, 4, 0}));
}

TEST_P(Indexing, TheLastOfSeveralScatteredElementsStays) {
  const Tensor x = counting({2, 3}), index = ints({2, 0, 2, 1}, {1, 4}), src = make({10, 20, 30, 40}, {1, 4});
  const auto of_src = [&](const Tensor& s) { return scatter(x, 1, index, s); };
  EXPECT_EQ(values(of_src(src)), (Doubles{20, 40, 30, 3, 4, 5}));
  EXPECT_EQ(gradient(src, of_src), (Doubles{0, 1, 3, 2}));
  EXPECT_EQ(gradient(x, [&](const Tensor& t) { return scatter(t, 1, index.slice(1, 0, 2), src); }),
            (Doubles{0, 2, 0, 4, 5, 6}));
  EXPECT_EQ(values(scatter(x, 0, ints({1, 1}, {1, 2}), -1)), (Doubles{0, 1, 2, -1, -1, 5}));
  EXPECT_EQ(values(scatter_add(x, 1, index, src)), (Doubles{20, 41, 42, 3, 4, 5}));
  const Tensor wraps = make({200, 100, 100, 40}, {1, 4}).to(u8);
  EXPECT_EQ(values(scatter_add(x.to(u8), 1, index, wraps)), (Doubles{100, 41, 46, 3, 4, 5}));
  EXPECT_EQ(values(scatter(x, 1, ints({}, {2, 0}), src.expand({2, 4}))), values(x));
}

TEST_P(Indexing, SumsOfScatteredElementsAreInOrderOnAnyThreads) {
  const Tensor index = randint(0, 40, {20000}, {i64}).to(device()), src = normal({20000}, on(f32));
  const Ints at = index.to(Device::cpu()).to_vector<int64_t>();
  const Floats from = src.to(Device::cpu()).to_vector<float>();
  Floats sums(40);
  for (size_t i = 0; i < at.size(); ++i) sums[static_cast<size_t>(at[i])] += from[i];
  const Tensor zero = zeros({40}, src.options());
  EXPECT_TRUE(same_bits(scatter_add(zero, 0, index, src), from_vector(sums, {40})));
  EXPECT_TRUE(same_on_any_threads([&] { return scatter_add(zero, 0, index, src); }));
}

TEST_P(Indexing, EmbeddingTakesRowsAndItsPaddingLearnsNothing) {
  const Tensor weight = counting({3, 2}), indices = ints({2, 0, 2, 1}, {2, 2});
  EXPECT_EQ(values(embedding(indices, weight)), (Doubles{4, 5, 0, 1, 4, 5, 2, 3}));
  EXPECT_EQ(embedding(indices[0][0], weight).shape(), Shape{2});
  EXPECT_EQ(gradient(weight, [&](const Tensor& w) { return embedding(indices, w, -1); }),
            (Doubles{3, 4, 7, 8, 0, 0}));
  nn::Embedding layer({.num_embeddings = 4, .embedding_dim = 3, .padding_idx = 1});
  EXPECT_EQ(values(layer.weight[1]), (Doubles{0, 0, 0}));
  EXPECT_EQ(layer.describe(), "Embedding(4, 3, padding_idx=1)");
  EXPECT_EQ(layer.state_dict().count("weight"), 1u);
  EXPECT_TRUE(equal(layer(ints({3, 1}, {2}).to(Device::cpu())),
                    cat({layer.weight.slice(0, 3), layer.weight.slice(0, 1, 2)})));
  EXPECT_THROW(nn::Embedding({.num_embeddings = 4, .embedding_dim = 3, .padding_idx = 4}), ValueError);
  EXPECT_REFUSED(ValueError, nn::Embedding({.num_embeddings = 4, .embedding_dim = -1}),
                 "num_embeddings and embedding_dim must be >= 0");
}

TEST_P(Indexing, NonzeroListsPlaces) {
  const Tensor x = make({0, nan, 0, 3, 0, 0, -0.0, 1}, {2, 2, 2});
  const Tensor places = nonzero(x);
  EXPECT_EQ(places.shape(), (Shape{3, 3}));
  EXPECT_EQ(places.to(Device::cpu()).to_vector<int64_t>(), (Ints{0, 0, 1, 0, 1, 1, 1, 1, 1}));
  EXPECT_EQ(nonzero(zeros({3, 2}, on(u8))).shape(), (Shape{0, 2}));
  EXPECT_EQ(nonzero(x.flatten()[3]).shape(), (Shape{1, 0}));
}

TEST_P(Indexing, Refuses) {
  const Tensor x = counting({2, 3}), index = ints({0, 3}, {1, 2}), fits = ints({0, 2}, {1, 2});
  EXPECT_MESSAGE(ShapeError, gather(x, 1, index),
                 "gather: index[(0,1)] is 3, outside a dimension of size 3; allowed are 0 to 2");
  EXPECT_MESSAGE(ShapeError, gather(x, 0, ints({0, 0, 0, 0}, {1, 4})),
                 "gather: index must have x's rank, and at most x's sizes except along dim 0, got (1,4) for "
                 "x of shape (2,3)");
  EXPECT_MESSAGE(ShapeError, scatter(x, 1, fits, counting({1, 1})),
                 "scatter: src must have x's rank and at least the sizes of index, got (1,1) for an index of "
                 "shape (1,2)");
  EXPECT_MESSAGE(ShapeError, embedding(ints({5}, {1}), x),
                 "embedding: indices[0] is 5, outside a dimension of size 2; allowed are 0 to 1");
  EXPECT_ERRORS(DTypeError, gather(x, 1, fits.to(f64)), scatter(x, 1, fits, counting({1, 2}).to(f32)),
                rand_like(fits));
  EXPECT_ERRORS(ValueError, scatter(x.to(u8), 1, fits, 300), embedding(fits, x, 2), quantile(x, 1.5));
  EXPECT_ERRORS(ShapeError, topk(x, 4), median(counting({0})), pixel_shuffle(counting({6, 1, 1}), 2),
                pixel_unshuffle(counting({6, 1, 1}), 2), repeat(x, {2}), meshgrid({x}),
                cumsum(counting({}), 1));
  EXPECT_REFUSED(ShapeError, repeat(x, {1, -1}), "repeat: numbers must be >= 0");
  EXPECT_REFUSED(ValueError, pixel_shuffle(counting({4, 1, 1}), 0), "needs a factor >= 1");
}

TEST_P(Indexing, CumulativeSumsAndProducts) {
  EXPECT_EQ(values(cumsum(counting({2, 3}), 0)), (Doubles{0, 1, 2, 3, 5, 7}));
  EXPECT_EQ(values(cumsum(ones({300}, on(u8)), 0))[299], 300);
  const Tensor x = make({2, 0, 3, 0, inf}, {5});
  const Doubles products = values(cumprod(x, 0));
  EXPECT_EQ(Doubles(products.begin(), products.end() - 1), (Doubles{2, 0, 0, 0}));
  EXPECT_TRUE(std::isnan(products[4]));
  EXPECT_EQ(values(cumprod(make({1, inf, 2}, {3}), 0)), (Doubles{1, inf, inf}));
  // That of x1 is 2 x0 + 3 x0 x2 + 4 x0 x2 x3: no division by the zeros.
  EXPECT_EQ(gradient(x.slice(0, 0, 4), [](const Tensor& t) { return cumprod(t, 0); }),
            (Doubles{1, 22, 0, 0}));
}

TEST_P(Indexing, SortIsStableAndNaNIsLargest) {
  const Tensor x = make({1, nan, -0.0, 1, -inf, 0, inf}, {7});
  EXPECT_EQ(argsort(x).to_vector<int64_t>(), (Ints{4, 2, 5, 0, 3, 6, 1}));
  EXPECT_EQ(argsort(x, 0, true).to_vector<int64_t>(), (Ints{1, 6, 0, 3, 2, 5, 4}));
  const auto [values2, indices2] = topk(x.slice(0, 2), 2);
  EXPECT_EQ(values(values2), (Doubles{inf, 1}));
  EXPECT_EQ(indices2.to_vector<int64_t>(), (Ints{4, 1}));
  EXPECT_EQ(argsort(ints({3, INT64_MIN, -1, INT64_MAX}, {4})).to_vector<int64_t>(), (Ints{1, 2, 0, 3}));
  const Tensor large = normal({5, 3000}, on(f32));
  const Tensor sorted = sort(large, 1).values;
  EXPECT_TRUE(all(le(sorted.slice(1, 0, 2999), sorted.slice(1, 1))).item<bool>());
  EXPECT_TRUE(allclose(sum(sorted, 1), sum(large, 1), 1e-4, 1e-3));
}

TEST_P(Indexing, MediansAndQuantiles) {
  const Tensor x = make({4, 1, 3, 2, nan, 0, 1, 2}, {2, 4});
  const auto [middle, place] = median(x, 1);
  EXPECT_EQ(values(middle)[0], 2);
  EXPECT_TRUE(std::isnan(values(middle)[1]));
  EXPECT_EQ(place.to_vector<int64_t>(), (Ints{3, 0}));
  EXPECT_EQ(values(quantile(x[0], 0.5)), (Doubles{2.5}));
  EXPECT_TRUE(std::isnan(values(quantile(x, 0.1))[0]));
  EXPECT_EQ(values(quantile(x[0], 1)), (Doubles{4}));
  EXPECT_EQ(quantile(x, 0.1, 0, true).shape(), (Shape{1, 4}));
  EXPECT_EQ(gradient(x[0], [](const Tensor& t) { return quantile(t, 0.25); }), (Doubles{0, 0.25, 0, 0.75}));
}

TEST_P(Indexing, RepeatTileMeshgrid) {
  const Tensor x = counting({2, 1});
  EXPECT_EQ(values(repeat(x, {2, 2})), (Doubles{0, 0, 1, 1, 0, 0, 1, 1}));
  EXPECT_EQ(repeat(x, {3, 0, 1}).shape(), (Shape{3, 0, 1}));
  EXPECT_EQ(values(tile(x, {3})), (Doubles{0, 0, 0, 1, 1, 1}));
  EXPECT_NE(repeat(x, {1, 1}).impl()->storage, x.impl()->storage);
  EXPECT_TRUE(
      repeat(ones({1, 2, 3}).transpose(1, 2), {2, 1, 1}).is_contiguous());  // its reshape is a copy already
  const std::vector<Tensor> grid = meshgrid({counting({2}), counting({3})});
  EXPECT_EQ(values(grid[0]), (Doubles{0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(values(grid[1]), (Doubles{0, 1, 2, 0, 1, 2}));
  Generator one(3), two(3);
  EXPECT_TRUE(same_bits(randn_like(x, one), randn({2, 1}, x.options(), two)));
  EXPECT_EQ(randint_like(x, 5, 6).dtype(), f64);
}

TEST_P(Indexing, PixelShuffleIsPyTorchs) {
  EXPECT_EQ(values(pixel_shuffle(counting({4, 1, 2}), 2)), (Doubles{0, 2, 1, 3, 4, 6, 5, 7}));
  EXPECT_EQ(values(pixel_shuffle(counting({2, 2}), 2, 1)), (Doubles{0, 2, 1, 3}));
  const Tensor cube = counting({8, 1, 1, 1});
  EXPECT_EQ(values(pixel_shuffle(cube, 2, 3)), values(cube));
  const Tensor x = counting({2, 8, 4, 4, 4});
  for (const int64_t axes : {1, 2, 3})
    EXPECT_TRUE(equal(pixel_unshuffle(pixel_shuffle(x, 2, axes), 2, axes), x)) << axes;
}

TEST_P(Indexing, UnpoolingPutsMaximaBack) {
  const Tensor x = make({1, 5, 2, 0, 3, 4, 9, 7}, {1, 2, 4});
  const auto [y, indices] = max_pool2d_with_indices(x, {.kernel_size = 2});
  EXPECT_EQ(indices.to_vector<int64_t>(), (Ints{1, 6}));
  EXPECT_EQ(values(max_unpool2d(y, indices, {.kernel_size = 2})), (Doubles{0, 5, 0, 0, 0, 0, 9, 0}));
  EXPECT_EQ(max_unpool2d(y, indices, {.kernel_size = 2, .output_size = {{3, 5}}}).shape(), (Shape{1, 3, 5}));
  EXPECT_THROW(max_unpool2d(y, indices, {.kernel_size = 1}), ShapeError);
  EXPECT_ERRORS(ValueError, max_unpool2d(y, indices, {.kernel_size = 0, .output_size = {{2, 4}}}),
                max_unpool2d(y, indices, {.kernel_size = 2, .stride = 0, .output_size = {{2, 4}}}),
                max_unpool2d(y, indices, {.kernel_size = 2, .padding = 2, .output_size = {{2, 4}}}));
}

TEST_P(Indexing, EinsumFollowsItsEquation) {
  const Tensor a = counting({2, 3}), square = counting({3, 3});
  EXPECT_EQ(values(einsum("ij,kj->ik", {a, a})), (Doubles{5, 14, 14, 50}));
  EXPECT_EQ(values(einsum("ji", {a})), values(a.transpose(0, 1)));
  EXPECT_EQ(values(einsum("ii", {square})), (Doubles{12}));
  EXPECT_EQ(values(einsum("ii->i", {square})), (Doubles{0, 4, 8}));
  EXPECT_EQ(values(einsum("i,j", {a[0], a[1]})), (Doubles{0, 0, 0, 3, 4, 5, 6, 8, 10}));
  EXPECT_EQ(values(einsum(" i j , j -> i ", {a, a[0]})), (Doubles{5, 14}));
  EXPECT_EQ(values(einsum("ij->", {a.to(i64)})), (Doubles{15}));
  EXPECT_MESSAGE(ValueError, einsum("...i->i", {a}),
                 "einsum: an equation has letters, ',' and one \"->\" (\"...\" is not supported), got '.' in "
                 "\"...i->i\"");
  for (const char* equation : {"ij->ijk", "ij->ii"})
    EXPECT_MESSAGE(ValueError, einsum(equation, {a}),
                   str("einsum: the result must have letters of the operands, once each, got '",
                       equation[6] == 'k' ? 'k' : 'i', "' in \"", equation, "\""));
  EXPECT_MESSAGE(ValueError, einsum("ij,jk", {a}), "einsum: \"ij,jk\" needs 2 operands, got 1");
  EXPECT_MESSAGE(ShapeError, einsum("ijk", {a}),
                 "einsum: operand 0 of shape (2,3) needs a letter for each dimension, got \"ijk\"");
  EXPECT_MESSAGE(ShapeError, einsum("ij,ij", {a, square}), "einsum: the letter 'i' has sizes 2 and 3");
  EXPECT_MESSAGE(ShapeError, einsum("ii", {a}), "einsum: the letter 'i' names dimensions of sizes 2 and 3");
}

}  // namespace
}  // namespace vox
