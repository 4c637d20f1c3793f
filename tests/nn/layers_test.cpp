#include "tests/nn/layers.h"

// The layers as a table: how each is made and printed, PyTorch's names of its parameters and buffers, and the
// op that it stands for. Every check below runs on every row. layers_refusal_test.cpp has the options and
// inputs that layers refuse, modal_layers_test.cpp what only norms and Dropout do.

namespace vox {
namespace {

template <int dims>
Tensor op_of(const nn::Conv<dims>& l, const Tensor& x) {
  return testing::op_of<dims>(l.options, x, l.weight, l.bias);
}
template <int dims>
Tensor op_of(const nn::ConvTranspose<dims>& l, const Tensor& x) {
  return testing::op_of<dims>(l.options, x, l.weight, l.bias);
}
Tensor op_of(const nn::PReLU& l, const Tensor& x) { return prelu(x, l.weight); }

Tensor op_of(const nn::Linear& l, const Tensor& x) {
  Shape shape = x.shape();
  shape[shape.rank() - 1] = l.options.out_features;
  const Tensor rows = x.rank() == 1 ? x.unsqueeze(0) : x.flatten(0, -2);
  const Tensor y = matmul(rows, l.weight.transpose(0, 1));
  return (l.bias.defined() ? y + l.bias : y).reshape(shape);
}

template <int dims>
Tensor op_of(const nn::BatchNorm<dims>& l, const Tensor& x) {
  const auto& o = l.options;
  const bool training = l.is_training() || !o.track_running_stats;
  return batch_norm(x, training ? Tensor() : l.running_mean, training ? Tensor() : l.running_var, l.weight,
                    l.bias, {.training = training, .eps = o.eps, .activation = o.activation});
}

template <int dims>
Tensor op_of(const nn::InstanceNorm<dims>& l, const Tensor& x) {
  const auto& o = l.options;
  const bool training = l.is_training() || !o.track_running_stats, batched = x.rank() == dims + 2;
  const Tensor y = instance_norm(batched ? x : x.unsqueeze(0), training ? Tensor() : l.running_mean,
                                 training ? Tensor() : l.running_var, l.weight, l.bias,
                                 {.use_input_stats = training, .eps = o.eps, .activation = o.activation});
  return batched ? y : y.squeeze(0);
}

Tensor op_of(const nn::GroupNorm& l, const Tensor& x) {
  return group_norm(x, l.options.num_groups, l.weight, l.bias, l.options.eps, l.activation);
}
Tensor op_of(const nn::LayerNorm& l, const Tensor& x) {
  return layer_norm(x, l.options.normalized_shape, l.weight, l.bias, l.options.eps, l.activation);
}

using Names = std::vector<std::pair<std::string, Shape>>;
using Shapes = std::vector<std::pair<Shape, Shape>>;

struct Layer {
  std::string printed;
  std::function<std::shared_ptr<nn::Module>(const TensorOptions&)> make;
  std::function<Tensor(nn::Module&, const Tensor&)> call, op;
  Names parameters, buffers;
  /// Of inputs and the outputs that they have in PyTorch; the first is small enough for gradcheck.
  Shapes shapes;
};

/// A layer with parameters; their dtype and device come from the check.
template <class L>
Layer layer(std::string printed, const typename L::Options& options, Names parameters, Shapes shapes,
            Names buffers = {}) {
  const auto make = [options](const TensorOptions& t) {
    auto o = options;
    o.tensor = t;
    return std::make_shared<L>(o);
  };
  return {std::move(printed),
          make,
          [](nn::Module& m, const Tensor& x) { return static_cast<L&>(m)(x); },
          [](nn::Module& m, const Tensor& x) { return op_of(static_cast<L&>(m), x); },
          std::move(parameters),
          std::move(buffers),
          std::move(shapes)};
}

/// A layer without parameters, which is `op`.
template <class L, class Op>
Layer plain(std::string printed, L layer, const Shape& in, const Shape& out, Op op) {
  const auto only = std::make_shared<L>(std::move(layer));
  return {std::move(printed),
          [only](const TensorOptions&) { return only; },
          [only](nn::Module&, const Tensor& x) { return (*only)(x); },
          [op](nn::Module&, const Tensor& x) { return op(x); },
          {},
          {},
          {{in, out}}};
}

std::vector<Layer> convolutions() {
  return {
      layer<nn::Conv1d>("Conv1d(4, 6, kernel_size=3, stride=2, padding=1, dilation=2, groups=2)",
                        conv<nn::Conv1d>(4, 6, 3, 2, 1, 2, 2), {{"weight", {6, 2, 3}}, {"bias", {6}}},
                        {{{2, 4, 7}, {2, 6, 3}}, {{5, 4, 11}, {5, 6, 5}}, {{4, 11}, {6, 5}}}),
      layer<nn::Conv2d>("Conv2d(4, 6, kernel_size=(3,2), stride=(2,1), padding=(1,0), dilation=(1,2), "
                        "groups=2, bias=false)",
                        conv<nn::Conv2d>(4, 6, {3, 2}, {2, 1}, {1, 0}, {1, 2}, 2, false),
                        {{"weight", {6, 2, 3, 2}}},
                        {{{1, 4, 3, 3}, {1, 6, 2, 1}}, {{5, 4, 7, 8}, {5, 6, 4, 6}}}),
      layer<nn::Conv2d>("Conv2d(2, 3, kernel_size=(2,3), stride=(1,2), padding=(1,0))",
                        conv<nn::Conv2d>(2, 3, {2, 3}, {1, 2}, {1, 0}),
                        {{"weight", {3, 2, 2, 3}}, {"bias", {3}}}, {{{1, 2, 3, 5}, {1, 3, 4, 2}}}),
      layer<nn::Conv3d>(
          "Conv3d(4, 6, kernel_size=(3,2,1), stride=(2,1,3), padding=(1,0,2), dilation=(1,2,1), groups=2)",
          conv<nn::Conv3d>(4, 6, {3, 2, 1}, {2, 1, 3}, {1, 0, 2}, {1, 2, 1}, 2),
          {{"weight", {6, 2, 3, 2, 1}}, {"bias", {6}}},
          {{{1, 4, 2, 3, 1}, {1, 6, 1, 1, 2}}, {{2, 4, 7, 8, 9}, {2, 6, 4, 6, 5}}}),
      layer<nn::Conv3d>("Conv3d(2, 2, kernel_size=(2,1,3), stride=(1,2,1), padding=(0,0,1))",
                        conv<nn::Conv3d>(2, 2, {2, 1, 3}, {1, 2, 1}, {0, 0, 1}),
                        {{"weight", {2, 2, 2, 1, 3}}, {"bias", {2}}}, {{{1, 2, 3, 3, 2}, {1, 2, 2, 2, 2}}}),
      layer<nn::ConvTranspose1d>(
          "ConvTranspose1d(4, 6, kernel_size=3, stride=2, padding=1, output_padding=1, dilation=2, groups=2)",
          transposed<nn::ConvTranspose1d>(4, 6, 3, 2, 1, 1, 2, 2), {{"weight", {4, 3, 3}}, {"bias", {6}}},
          {{{2, 4, 3}, {2, 6, 8}}, {{5, 4, 7}, {5, 6, 16}}, {{4, 7}, {6, 16}}}),
      layer<nn::ConvTranspose2d>(
          "ConvTranspose2d(4, 6, kernel_size=(3,2), stride=(2,1), padding=(1,0), output_padding=(1,0), "
          "dilation=(1,2), groups=2, bias=false)",
          transposed<nn::ConvTranspose2d>(4, 6, {3, 2}, {2, 1}, {1, 0}, {1, 0}, {1, 2}, 2, false),
          {{"weight", {4, 3, 3, 2}}}, {{{1, 4, 2, 2}, {1, 6, 4, 4}}, {{5, 4, 7, 8}, {5, 6, 14, 10}}}),
      layer<nn::ConvTranspose2d>("ConvTranspose2d(2, 1, kernel_size=(2,3), stride=(1,2), dilation=(2,1))",
                                 transposed<nn::ConvTranspose2d>(2, 1, {2, 3}, {1, 2}, 0, 0, {2, 1}),
                                 {{"weight", {2, 1, 2, 3}}, {"bias", {1}}}, {{{1, 2, 2, 3}, {1, 1, 4, 7}}}),
      layer<nn::ConvTranspose3d>(
          "ConvTranspose3d(2, 4, kernel_size=(3,3,3), stride=(1,2,3), padding=(1,1,1), groups=2)",
          transposed<nn::ConvTranspose3d>(2, 4, 3, {1, 2, 3}, 1, 0, 1, 2),
          {{"weight", {2, 2, 3, 3, 3}}, {"bias", {4}}},
          {{{1, 2, 1, 2, 2}, {1, 4, 1, 3, 4}}, {{1, 2, 3, 4, 5}, {1, 4, 3, 7, 13}}}),
      layer<nn::ConvTranspose3d>(
          "ConvTranspose3d(2, 2, kernel_size=(1,2,3), stride=(1,2,2), padding=(0,0,1))",
          transposed<nn::ConvTranspose3d>(2, 2, {1, 2, 3}, {1, 2, 2}, {0, 0, 1}),
          {{"weight", {2, 2, 1, 2, 3}}, {"bias", {2}}}, {{{1, 2, 2, 2, 2}, {1, 2, 2, 4, 3}}}),
      layer<nn::PReLU>("PReLU(1)", {}, {{"weight", {1}}}, {{{2, 3}, {2, 3}}, {{4}, {4}}}),
      layer<nn::PReLU>("PReLU(3)", {.num_parameters = 3}, {{"weight", {3}}},
                       {{{2, 3, 2}, {2, 3, 2}}, {{1, 3}, {1, 3}}}),
      layer<nn::Linear>("Linear(5, 3)", {.in_features = 5, .out_features = 3},
                        {{"weight", {3, 5}}, {"bias", {3}}},
                        {{{2, 2, 5}, {2, 2, 3}},
                         {{5}, {3}},
                         {{7, 5}, {7, 3}},
                         {{2, 3, 4, 5}, {2, 3, 4, 3}},
                         {{0, 5}, {0, 3}},
                         {{0, 2, 5}, {0, 2, 3}}}),
      layer<nn::Linear>("Linear(3, 2, bias=false)", {.in_features = 3, .out_features = 2, .bias = false},
                        {{"weight", {2, 3}}}, {{{2, 2, 3}, {2, 2, 2}}}),
      layer<nn::Linear>("Linear(0, 2)", {.in_features = 0, .out_features = 2},
                        {{"weight", {2, 0}}, {"bias", {2}}}, {{{2, 0}, {2, 2}}}),
      layer<nn::Linear>("Linear(2, 0)", {.in_features = 2, .out_features = 0},
                        {{"weight", {0, 2}}, {"bias", {0}}}, {{{1, 3, 2}, {1, 3, 0}}})};
}

/// Inputs whose outputs have their shapes.
Shapes kept(const std::vector<Shape>& inputs) {
  Shapes shapes;
  for (const Shape& in : inputs) shapes.emplace_back(in, in);
  return shapes;
}

std::vector<Layer> norms() {
  const Names tracked{{"running_mean", {4}}, {"running_var", {4}}, {"num_batches_tracked", {}}};
  const Names affine{{"weight", {4}}, {"bias", {4}}};
  const auto relu = Activation::relu(), leaky = Activation::leaky_relu(0.25);
  return {
      layer<nn::BatchNorm1d>("BatchNorm1d(4, eps=1e-05)", {.num_features = 4}, affine,
                             kept({{3, 4, 2}, {7, 4}}), tracked),
      layer<nn::BatchNorm2d>("BatchNorm2d(4, eps=0.5, relu)",
                             {.num_features = 4, .eps = 0.5, .activation = relu}, affine,
                             kept({{2, 4, 3, 2}}), tracked),
      layer<nn::BatchNorm3d>("BatchNorm3d(4, eps=1e-05, affine=false)", {.num_features = 4, .affine = false},
                             {}, kept({{2, 4, 1, 2, 2}}), tracked),
      layer<nn::BatchNorm3d>("BatchNorm3d(4, eps=1e-05)", {.num_features = 4, .track_running_stats = false},
                             affine, kept({{2, 4, 1, 2, 2}})),
      layer<nn::InstanceNorm1d>("InstanceNorm1d(4, eps=1e-05, affine=true)",
                                {.num_features = 4, .affine = true, .track_running_stats = true}, affine,
                                kept({{2, 4, 3}, {4, 3}}), tracked),
      layer<nn::InstanceNorm2d>("InstanceNorm2d(4, eps=0.5, relu, affine=true)",
                                {.num_features = 4, .eps = 0.5, .affine = true, .activation = relu}, affine,
                                kept({{2, 4, 3, 2}, {4, 3, 5}})),
      layer<nn::InstanceNorm3d>("InstanceNorm3d(4, eps=1e-05)", {.num_features = 4}, {},
                                kept({{2, 4, 1, 3, 2}})),
      layer<nn::GroupNorm>("GroupNorm(2, 4, eps=0.5, relu)",
                           {.num_groups = 2, .num_channels = 4, .eps = 0.5, .activation = relu}, affine,
                           kept({{2, 4, 3}, {2, 4, 3, 5}})),
      layer<nn::GroupNorm>("GroupNorm(2, 4, eps=1e-05, leaky_relu 0.25, affine=false)",
                           {.num_groups = 2, .num_channels = 4, .affine = false, .activation = leaky}, {},
                           kept({{2, 4, 3}})),
      layer<nn::LayerNorm>("LayerNorm((3,5), eps=0.5, relu)",
                           {.normalized_shape = {3, 5}, .eps = 0.5, .activation = relu},
                           {{"weight", {3, 5}}, {"bias", {3, 5}}}, kept({{2, 3, 5}, {2, 4, 3, 5}})),
      layer<nn::LayerNorm>("LayerNorm((2,), eps=1e-05)", {.normalized_shape = {2}, .bias = false},
                           {{"weight", {2}}}, kept({{3, 2}})),
      layer<nn::LayerNorm>("LayerNorm((2,), eps=1e-05, affine=false)",
                           {.normalized_shape = {2}, .elementwise_affine = false}, {}, kept({{3, 2}}))};
}

std::vector<Layer> layers_without_parameters() {
  const Shape v{2, 3}, pair{1, 1, 1, 1, 2}, cube{1, 1, 3, 3, 3}, two{1, 1, 2, 2, 2};
  const MaxPool3dOptions max{.kernel_size = 2, .padding = 1};
  const AvgPool3dOptions avg{.kernel_size = 2, .stride = 1};
  const Triple size(1, 2, 2);
  const InterpolateOptions nearest{.size = {{1, 2, 4}}},
      linear{.scale_factor = {{2, 1, 1.5}}, .mode = InterpolateOptions::Mode::trilinear};
  return {
      plain("ReLU", nn::ReLU(), v, v, relu),
      plain("LeakyReLU(0.01)", nn::LeakyReLU(), v, v, [](auto& x) { return leaky_relu(x, 0.01); }),
      plain("LeakyReLU(0.5)", nn::LeakyReLU(0.5), v, v, [](auto& x) { return leaky_relu(x, 0.5); }),
      plain("GELU", nn::GELU(), v, v, gelu),
      plain("SiLU", nn::SiLU(), v, v, silu),
      plain("Sigmoid", nn::Sigmoid(), v, v, sigmoid),
      plain("Tanh", nn::Tanh(), v, v, tanh),
      plain("Mish", nn::Mish(), v, v, mish),
      plain("ReLU6", nn::ReLU6(), v, v, relu6),
      plain("Hardsigmoid", nn::Hardsigmoid(), v, v, hardsigmoid),
      plain("Hardswish", nn::Hardswish(), v, v, hardswish),
      plain("ELU(1)", nn::ELU(), v, v, [](auto& x) { return elu(x, 1); }),
      plain("ELU(0.5)", nn::ELU(0.5), v, v, [](auto& x) { return elu(x, 0.5); }),
      plain("Softplus(1, 20)", nn::Softplus(), v, v, [](auto& x) { return softplus(x, 1, 20); }),
      plain("Softplus(2, 5)", nn::Softplus(2, 5), v, v, [](auto& x) { return softplus(x, 2, 5); }),
      plain("Hardtanh(-1, 1)", nn::Hardtanh(), v, v, [](auto& x) { return hardtanh(x, -1, 1); }),
      plain("Hardtanh(-3, 2)", nn::Hardtanh(-3, 2), v, v, [](auto& x) { return hardtanh(x, -3, 2); }),
      plain("Softmax(0)", nn::Softmax(0), v, v, [](auto& x) { return softmax(x, 0); }),
      plain("MaxPool3d(kernel_size=(2,2,2), padding=(1,1,1))", nn::MaxPool3d(max), cube, two,
            [=](auto& x) { return max_pool3d(x, max); }),
      plain("AvgPool3d(kernel_size=(2,2,2), stride=(1,1,1))", nn::AvgPool3d(avg), cube, two,
            [=](auto& x) { return avg_pool3d(x, avg); }),
      plain("AdaptiveAvgPool3d((1,2,2))", nn::AdaptiveAvgPool3d(size), cube, {1, 1, 1, 2, 2},
            [=](auto& x) { return adaptive_avg_pool3d(x, size); }),
      plain("AdaptiveMaxPool3d((1,2,2))", nn::AdaptiveMaxPool3d(size), cube, {1, 1, 1, 2, 2},
            [=](auto& x) { return adaptive_max_pool3d(x, size); }),
      plain("Upsample(scale_factor=(2,1,1.5), trilinear)", nn::Upsample(linear), two, {1, 1, 4, 2, 3},
            [=](auto& x) { return interpolate(x, linear); }),
      plain("Upsample(size=(1,2,4), nearest)", nn::Upsample(nearest), pair, {1, 1, 1, 2, 4},
            [=](auto& x) { return interpolate(x, nearest); }),
      plain("Flatten(1, -1)", nn::Flatten(), cube, {1, 27}, [](auto& x) { return x.flatten(1, -1); }),
      plain("Flatten(0, 1)", nn::Flatten(0, 1), {2, 3, 2}, {6, 2}, [](auto& x) { return x.flatten(0, 1); }),
      plain("Identity", nn::Identity(), v, v, [](auto& x) { return x; })};
}

/// A module of modules, whose names are dotted.
Layer nested() {
  return {"Sequential",
          [](const TensorOptions& t) {
            return std::make_shared<nn::Sequential>(
                nn::Linear({.in_features = 3, .out_features = 4, .tensor = t}), nn::Tanh(),
                nn::BatchNorm1d({.num_features = 4, .tensor = t}));
          },
          [](nn::Module& m, const Tensor& x) { return static_cast<nn::Sequential&>(m)(x); },
          [](nn::Module& m, const Tensor& x) {
            auto& net = static_cast<nn::Sequential&>(m);
            return op_of(static_cast<nn::BatchNorm1d&>(net[2]),
                         tanh(op_of(static_cast<nn::Linear&>(net[0]), x)));
          },
          {{"0.weight", {4, 3}}, {"0.bias", {4}}, {"2.weight", {4}}, {"2.bias", {4}}},
          {{"2.running_mean", {4}}, {"2.running_var", {4}}, {"2.num_batches_tracked", {}}},
          {{{5, 3}, {5, 4}}}};
}

std::vector<Layer> layers() {
  std::vector<Layer> all = convolutions();
  all.push_back(nested());
  for (const auto& more : {norms(), layers_without_parameters()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

constexpr DType floating[] = {f32, f64, bf16, f16};

DEVICE_SUITE(LayersTest);

/// Gives parameters and buffers random values; variances are positive.
void randomise(nn::Module& m) {
  const auto guard = no_grad();
  unsigned seed = 1;
  for (auto [name, t] : m.state_dict()) {
    const Tensor values = normal(t.shape(), {f64, t.device()}, ++seed);
    if (is_floating(t.dtype()))
      t.copy_((name.ends_with("running_var") ? abs(values) + 0.5 : values).to(t.dtype()));
  }
}

TEST_P(LayersTest, PrintTheirOptions) {
  for (const Layer& layer : layers()) EXPECT_EQ(layer.make(on(f32))->describe(), layer.printed);
}

TEST_P(LayersTest, StatesHavePyTorchsNamesAndShapes) {
  for (const Layer& layer : layers()) {
    for (const DType dtype : floating) {
      SCOPED_TRACE(str(layer.printed, " ", dtype));
      const auto m = layer.make(on(dtype));
      EXPECT_EQ(m->state_dict().size(), layer.parameters.size() + layer.buffers.size());
      const auto check_all = [&](const std::vector<nn::NamedTensor>& got, const Names& expected,
                                 bool trained) {
        ASSERT_EQ(got.size(), expected.size());
        for (size_t i = 0; i < got.size(); ++i) {
          const auto& [name, t] = got[i];
          EXPECT_EQ(name, expected[i].first);
          EXPECT_EQ(t.shape(), expected[i].second) << name;
          EXPECT_EQ(t.dtype(), name.ends_with("num_batches_tracked") ? i64 : dtype) << name;
          EXPECT_EQ(t.device(), device()) << name;
          EXPECT_TRUE(t.is_leaf() && t.requires_grad() == trained) << name;
          EXPECT_EQ(m->state_dict().at(name).impl(), t.impl()) << name;
        }
      };
      check_all(m->named_parameters(), layer.parameters, true);
      check_all(m->named_buffers(), layer.buffers, false);
    }
  }
}

TEST_P(LayersTest, ForwardIsTheOpInBothModes) {
  for (const Layer& layer : layers()) {
    for (const DType dtype : floating) {
      const auto m = layer.make(on(dtype));
      randomise(*m);
      for (const bool training : {true, false}) {
        m->train(training);
        EXPECT_EQ(m->is_training(), training);
        for (const auto& [in, out] : layer.shapes) {
          SCOPED_TRACE(str(layer.printed, " ", dtype, " ", in, training ? " training" : ""));
          const Tensor x = normal(in, on(dtype));
          const Tensor expected = layer.op(*m, x), y = layer.call(*m, x);
          EXPECT_EQ(y.shape(), out);
          EXPECT_EQ(y.device(), device());
          EXPECT_TRUE(same_bits(y, expected));
        }
      }
    }
  }
}

TEST_P(LayersTest, ToAndLoadRoundOnceBehindTheHandles) {
  for (const Layer& layer : layers()) {
    for (const DType dtype : floating) {
      SCOPED_TRACE(str(layer.printed, " ", dtype));
      const auto m = layer.make({}), wide = layer.make({}), other = layer.make(on(dtype));
      randomise(*m);
      wide->load_state_dict(m->state_dict());
      const nn::StateDict handles = m->state_dict();
      m->to(dtype).to(device());
      other->load_state_dict(wide->state_dict());  // rounds in the same way
      for (const auto& [name, before] : wide->state_dict()) {
        const Tensor& t = handles.at(name);
        const Tensor expected = is_floating(before.dtype()) ? before.detach().to(dtype) : before;
        EXPECT_EQ(m->state_dict().at(name).impl(), t.impl()) << name;
        EXPECT_NE(t.impl()->storage, before.impl()->storage) << "loading copies " << name;
        EXPECT_EQ(t.device(), device()) << name;
        EXPECT_EQ(t.requires_grad(), before.requires_grad()) << name;
        EXPECT_TRUE(same_bits(t, expected)) << name;
        EXPECT_TRUE(same_bits(other->state_dict().at(name), expected)) << name;
      }
      EXPECT_EQ(layer.call(*m, normal(layer.shapes[0].first, on(dtype))).dtype(), dtype);
      m->to(Device::cpu());
      for (const auto& [name, t] : handles) EXPECT_EQ(t.device(), Device::cpu()) << name;
    }
  }
}

TEST_P(LayersTest, InitialValuesAreThoseOfF32Rounded) {
  for (const Layer& layer : layers()) {
    const auto make = [&](DType dtype) {
      manual_seed(5);
      return layer.make(on(dtype))->state_dict();
    };
    const nn::StateDict wide = make(f32);
    manual_seed(6);
    const nn::StateDict other = layer.make(on(f32))->state_dict();
    for (const DType half : {bf16, f16}) {
      for (const auto& [name, t] : make(half))
        EXPECT_TRUE(same_bits(t, wide.at(name).detach().to(t.dtype()))) << layer.printed << name;
    }
    if (layer.printed == "Linear(5, 3)") {
      EXPECT_FALSE(same_bits(wide.at("weight"), other.at("weight")));
    }
  }
}

TEST_P(LayersTest, Gradients) {
  for (const Layer& layer : layers()) {
    SCOPED_TRACE(layer.printed);
    const auto m = layer.make(on(f64));
    std::vector<Tensor> inputs = m->parameters();
    inputs.push_back(normal(layer.shapes[0].first, on(f64)).set_requires_grad());
    for (const bool training : {true, false}) {
      m->train(training);
      EXPECT_TRUE(autograd::gradcheck(
          [&](const std::vector<Tensor>& all) { return layer.call(*m, all.back()); }, inputs));
    }
  }
}

TEST_P(LayersTest, RefuseOtherDtypesAndUndefinedInputs) {
  for (const Layer& layer : layers()) {
    if (layer.parameters.empty() || layer.printed == "Sequential") continue;
    const std::string name = str("nn::", layer.printed.substr(0, layer.printed.find('(')), ": ");
    for (const DType dtype : {i64, u8})
      EXPECT_MESSAGE(
          DTypeError, layer.make(on(dtype)),
          str(name, "needs a floating dtype, got ", dtype, "; allowed are f32, f64, bf16 and f16"));
    const auto m = layer.make(on(f32));
    EXPECT_REFUSED(DTypeError, layer.call(*m, normal(layer.shapes[0].first, on(f64))), name);
    EXPECT_REFUSED(ValueError, layer.call(*m, Tensor()), name + "argument ", " is an undefined tensor");
    for (const auto& [buffer, t] : m->named_buffers()) {  // it is refused before it is counted
      EXPECT_TRUE(buffer != "num_batches_tracked" || t.item<int64_t>() == 0) << name;
    }
  }
}

/// All elements within +-bound, their extremes near it, their mean and variance those of the uniform
/// distribution within 5 standard errors.
void expect_uniform(const Tensor& t, double bound) {
  const Tensor x = t.detach().to(f64);
  const auto n = static_cast<double>(x.numel());
  const double largest = max(abs(x)).item();
  EXPECT_LE(largest, bound);
  EXPECT_GT(largest, bound * (1 - 20 / n));
  EXPECT_NEAR(mean(x).item(), 0, 5 * bound / std::sqrt(3 * n));
  EXPECT_NEAR(mean(x * x).item(), bound * bound / 3, 5 * bound * bound * std::sqrt(4 / (45 * n)));
}

TEST_P(LayersTest, InitialValuesAreUniformWithPyTorchsBounds) {
  manual_seed(7);
  const TensorOptions o = on(f32);
  const nn::Linear linear({.in_features = 64, .out_features = 500, .tensor = o});
  const nn::Conv3d conv(
      {.in_channels = 8, .out_channels = 400, .kernel_size = {3, 2, 3}, .groups = 2, .tensor = o});
  const nn::ConvTranspose3d up(
      {.in_channels = 8, .out_channels = 400, .kernel_size = {3, 2, 3}, .groups = 2, .tensor = o});
  expect_uniform(linear.weight, 1 / 8.0);
  expect_uniform(linear.bias, 1 / 8.0);
  EXPECT_EQ(nn::Linear({.in_features = 0, .out_features = 2, .tensor = o}).bias.to_vector<float>(),
            (Floats{0, 0}));
  expect_uniform(conv.weight, 1 / std::sqrt(4 * 18));
  expect_uniform(conv.bias, 1 / std::sqrt(4 * 18));
  expect_uniform(up.weight, 1 / std::sqrt(200 * 18));  // shape[1] counts, as in PyTorch, not the sums' length
  expect_uniform(up.bias, 1 / std::sqrt(200 * 18));
  expect_uniform(nn::Conv1d({.in_channels = 9, .out_channels = 300, .kernel_size = 4, .tensor = o}).weight,
                 1 / 6.0);
  expect_uniform(
      nn::ConvTranspose2d({.in_channels = 300, .out_channels = 9, .kernel_size = {2, 2}, .tensor = o}).weight,
      1 / 6.0);
}

TEST_P(LayersTest, NormsStartWithPyTorchsValues) {
  for (const Layer& layer : norms()) {
    for (const auto& [name, t] : layer.make(on(f32))->state_dict()) {
      const int value = name == "weight" || name == "running_var" ? 1 : 0;
      EXPECT_TRUE(same_bits(t, full(t.shape(), value, t.options()))) << layer.printed << name;
    }
  }
}

TEST_P(LayersTest, OutputSizesOfTransposedConvolutions) {
  const auto shape_of = [&](auto layer, const Shape& input, auto output_size) {
    layer.to(device());
    return layer.forward(rand(input, on(f32)), output_size).shape();
  };
  const auto one = transposed<nn::ConvTranspose1d>(4, 6, 3, 2, 1, 1, 2, 2);
  const auto two = transposed<nn::ConvTranspose2d>(4, 6, {3, 2}, {2, 1}, {1, 0}, {1, 0}, {1, 2}, 2, false);
  const auto three = transposed<nn::ConvTranspose3d>(2, 4, 3, {1, 2, 3}, 1, 0, 1, 2);
  EXPECT_EQ(shape_of(nn::ConvTranspose1d(one), {5, 4, 7}, 15), Shape({5, 6, 15}));
  EXPECT_EQ(shape_of(nn::ConvTranspose2d(two), {5, 4, 7, 8}, Pair(13, 10)), Shape({5, 6, 13, 10}));
  EXPECT_EQ(shape_of(nn::ConvTranspose3d(three), {1, 2, 3, 4, 5}, Triple(3, 8, 15)), Shape({1, 4, 3, 8, 15}));
  EXPECT_THROW(shape_of(nn::ConvTranspose1d(one), {5, 4, 7}, 20), ShapeError);
  nn::ConvTranspose1d by_hand(transposed<nn::ConvTranspose1d>(1, 1, 3, 2, 1, 1, 1, 1, false));
  by_hand.load_state_dict({{"weight", from_vector<float>({10, 20, 30}, {1, 1, 3})}});
  by_hand.to(device());
  EXPECT_EQ(by_hand.forward(make({1, 2}, {1, 1, 2}, f32), 3).to_vector<float>(), (Floats{20, 50, 40}));
}

}  // namespace
}  // namespace vox
