#pragma once

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include <voxgrad/ops/conv3d_kernel.h>
#include "problems.h"

// The geometries that bench_conv3d_sweep measures: those of KernelBench, the layers of the networks of
// bench/networks, and lines of geometries that differ in one parameter.

using vox::Triple;

/// A geometry, with the names of all problems and layers that have it: "group/name", the first is the key.
struct Call {
  std::vector<std::string> names;
  vox::Conv3dGeometry geometry;
  std::optional<vox::Conv3dPass> unused = {};  // the gradient of a network's input is not needed
};

/// The geometry of a Problem or a Point.
inline vox::Conv3dGeometry geometry_of(const auto& p) {
  return vox::detail::conv_transpose3d_geometry("bench_conv3d", input_shape(p), weight_shape(p), p.options);
}

/// The convolution with which a problem begins; bench/level2/problems.py has what follows it. That of problem
/// 38 reads a pooled input.
struct Level2 {
  int number;
  int64_t batch, c_in, c_out;
  Triple input;
  int64_t kernel, stride, padding, output_padding;
};
constexpr Level2 level2[]{
    {3, 32, 32, 64, {16, 32, 32}, 3, 2, 1, 1},    {13, 16, 16, 64, {32, 128, 128}, 3, 1, 1, 0},
    {15, 16, 16, 32, {16, 32, 32}, 3, 2, 1, 0},   {20, 16, 32, 64, {16, 32, 32}, 3, 2, 1, 1},
    {26, 128, 32, 64, {16, 16, 16}, 3, 2, 1, 1},  {34, 32, 32, 64, {16, 32, 32}, 4, 2, 1, 0},
    {38, 32, 32, 64, {16, 32, 32}, 3, 2, 1, 1},   {49, 16, 32, 64, {16, 32, 32}, 3, 2, 1, 1},
    {50, 128, 3, 16, {16, 32, 32}, 3, 2, 1, 0},   {58, 128, 3, 16, {16, 32, 32}, 3, 2, 1, 0},
    {60, 128, 3, 16, {16, 32, 32}, 3, 2, 1, 0},   {61, 16, 64, 128, {32, 32, 32}, 3, 1, 0, 0},
    {72, 64, 3, 16, {32, 32, 32}, 3, 2, 1, 0},    {74, 16, 16, 32, {16, 32, 32}, 3, 2, 1, 1},
    {77, 16, 64, 128, {16, 32, 32}, 5, 1, 0, 0},  {78, 16, 32, 64, {32, 32, 32}, 5, 2, 2, 0},
    {89, 128, 3, 16, {16, 32, 32}, 3, 2, 1, 1},   {96, 128, 3, 16, {16, 32, 32}, 3, 2, 1, 0},
    {100, 16, 64, 128, {24, 48, 48}, 3, 2, 1, 0},
};

inline vox::Conv3dGeometry geometry_of(const Level2& p) {
  return geometry_of(
      Problem{.number = p.number,
              .batch = p.batch,
              .c_in = p.c_in,
              .c_out = p.c_out,
              .input = p.input,
              .kernel = p.kernel,
              .options = {.stride = p.stride, .padding = p.padding, .output_padding = p.output_padding}});
}

/// A layer of a network; `cells` of its input along each axis.
struct Layer {
  bool transposed;
  int64_t in, out, cells, kernel = 3, stride = 1, padding = 1;
};

inline Call call_of(const std::string& network, int64_t batch, const Layer& l, bool first) {
  using enum vox::Conv3dPass;
  const vox::Shape input{batch, l.in, l.cells, l.cells, l.cells};
  const std::string name = vox::str(network, l.transposed ? "/up " : "/conv ", l.in, "-", l.out, " k",
                                    l.kernel, l.stride > 1 ? vox::str(" s", l.stride) : "", " @", l.cells);
  const int64_t k = l.kernel;
  Call call{{name}, {}};
  if (first) call.unused = l.transposed ? conv3d : conv_transpose3d;
  call.geometry = l.transposed
                      ? vox::detail::conv_transpose3d_geometry("bench_conv3d", input, {l.in, l.out, k, k, k},
                                                               {.stride = l.stride, .padding = l.padding})
                      : vox::detail::conv3d_geometry("bench_conv3d", input, {l.out, l.in, k, k, k},
                                                     {.stride = l.stride, .padding = l.padding});
  return call;
}

/// Two convolutions a level on the way down and up. Levels begin with a strided convolution, or with pooling.
inline std::vector<Layer> unet(const std::vector<int64_t>& channels, int64_t cells, bool strided) {
  std::vector<Layer> layers;
  for (size_t i = 0; i < channels.size(); ++i) {
    const int64_t c = channels[i], here = cells >> i;
    const bool down = strided && i > 0;
    layers.push_back({false, i > 0 ? channels[i - 1] : 1, c, down ? 2 * here : here, 3, down ? 2 : 1});
    layers.push_back({false, c, c, here});
    if (i + 1 == channels.size()) break;
    layers.push_back({true, channels[i + 1], c, here / 2, 2, 2, 0});
    layers.push_back({false, 2 * c, c, here});
  }
  layers.push_back({false, channels[0], 2, cells, 1, 1, 0});
  return layers;
}

inline std::vector<Layer> decoder(const std::vector<int64_t>& channels, int64_t cells) {
  std::vector<Layer> layers;
  for (size_t i = 0; i + 1 < channels.size(); ++i)
    layers.push_back({true, channels[i], channels[i + 1], cells << i, 4, 2});
  return layers;
}

inline std::vector<Call> network_calls() {
  struct Network {
    std::string name;
    int64_t batch;
    std::vector<Layer> layers;
  };
  const Network networks[] = {
      {"unet128", 2, unet({32, 64, 128, 256}, 128, false)},
      {"unet64", 2, unet({32, 64, 128, 256}, 64, false)},
      {"decoder", 16, decoder({256, 128, 64, 32, 1}, 4)},
      {"example04", 8, {{false, 1, 16, 16}, {false, 16, 16, 16}, {true, 16, 1, 16, 4, 2}}},
      {"nnunet128", 2, unet({32, 64, 128, 256, 320, 320}, 128, true)},
  };
  std::vector<Call> calls;
  for (const Network& network : networks)
    for (const Layer& layer : network.layers)
      calls.push_back(call_of(network.name, network.batch, layer, &layer == network.layers.data()));
  return calls;
}

/// A transposed convolution like Problem in problems.h, with default values that the lines vary.
struct Point {
  int64_t batch = 4, c_in = 32, c_out = 32;
  Triple input = 32, kernel = 3;
  vox::ConvTranspose3dOptions options = {.padding = 1};
};

/// Geometries in order: each is a neighbour of the next.
struct Line {
  std::string name;
  std::vector<std::string> labels = {};
  std::vector<Point> points = {};
};

/// The line along which `change(point, value)` changes one parameter of `base`.
template <class T, class Change>
Line line(const std::string& name, const Point& base, std::initializer_list<T> values, Change change) {
  Line made{name};
  for (const T& value : values) {
    Point point = base;
    change(point, value);
    made.labels.push_back(vox::str(value));
    made.points.push_back(point);
  }
  return made;
}

inline std::string name_of(const Line& l, size_t i) { return "sweep/" + l.name + "/" + l.labels[i]; }

inline std::vector<Line> all_lines() {
  const auto cin = [](Point& p, int64_t c) { p.c_in = c; };
  const auto cout = [](Point& p, int64_t c) { p.c_out = c; };
  const auto channels = [](Point& p, int64_t c) { p.c_in = p.c_out = c; };
  const auto depthwise = [](Point& p, int64_t c) { p.c_in = p.c_out = p.options.groups = c; };
  const auto groups = [](Point& p, int64_t g) { p.options.groups = g; };
  const auto volume = [](Point& p, int64_t v) { p.input = v; };
  const auto kernel = [](Point& p, const Triple& k) { p.kernel = k; };
  const auto stride = [](Point& p, const Triple& s) { p.options.stride = s; };
  const auto dilation = [](Point& p, const Triple& d) { p.options.dilation = d; };
  const auto padding = [](Point& p, const Triple& v) { p.options.padding = v; };
  const auto output_padding = [](Point& p, const Triple& v) { p.options.output_padding = v; };
  using I = std::initializer_list<int64_t>;
  using T = std::initializer_list<Triple>;
  const I counts{1,  2,  3,  4,  5,  7,  8,  9,  12, 15,  16,  17,  24,
                 25, 31, 32, 33, 48, 63, 64, 65, 96, 100, 128, 192, 256};

  const Point s1{}, small{.input = 24};
  const Point full{.options = {}};  // no padding: the shape of decoders
  const Point s2{.input = 24, .kernel = 4, .options = {.stride = 2, .padding = 1}};
  const Point s2k3{.input = 24, .options = {.stride = 2, .padding = 1}};
  const Point twice{.input = 24, .kernel = 2, .options = {.stride = 2}};
  const Point s3{.input = 16, .kernel = 5, .options = {.stride = 3, .padding = 1}};
  const Point one{.kernel = 1, .options = {}};
  const Point wide{.c_in = 64, .c_out = 64, .input = 24};

  return {
      line("input channels", small, counts, cin),
      line("output channels", small, counts, cout),
      line("channels", {.batch = 2, .input = 20}, I{1, 3, 8, 17, 24, 32, 48, 64, 100, 128, 192, 256},
           channels),
      line("channels, stride 2", {.batch = 2, .input = 16, .kernel = 4, .options = s2.options},
           I{1, 3, 8, 17, 24, 32, 48, 64, 100, 128, 192, 256}, channels),
      line("channels, 1x1x1", one, I{1, 3, 8, 17, 24, 32, 48, 64, 100, 128, 192, 256}, channels),
      line("channels, 2x2x2 s2", twice, I{1, 3, 8, 17, 24, 32, 48, 64, 100, 128, 192, 256}, channels),
      line("channels, depthwise", s1, I{1, 3, 8, 17, 32, 64, 100, 256}, depthwise),
      line("channels, depthwise s2", s2, I{1, 3, 8, 17, 32, 64, 100, 256}, depthwise),
      line("groups of 32", s1, I{1, 2, 4, 8, 16, 32}, groups),
      line("groups of 64", wide, I{1, 2, 4, 8, 16, 32, 64}, groups),
      line("groups of 64, stride 2",
           {.c_in = 64, .c_out = 64, .input = 16, .kernel = 4, .options = s2.options},
           I{1, 2, 4, 8, 16, 32, 64}, groups),
      line("kernel, no padding", full, T{1, 2, 3, 4, 5, 6, 7}, kernel),
      line("kernel, padding 1", {.input = 24}, T{2, 3, 4, 5, 6, 7}, kernel),
      line("kernel, axis by axis", full,
           T{{1, 1, 1},
             {1, 1, 3},
             {1, 3, 3},
             {3, 3, 3},
             {3, 3, 5},
             {3, 5, 5},
             {3, 5, 7},
             {5, 5, 7},
             {5, 7, 7},
             {7, 7, 7},
             {7, 7, 5},
             {7, 5, 5},
             {7, 5, 3},
             {5, 5, 3},
             {5, 3, 3}},
           kernel),
      line("kernel 3 on some axes", full, T{{1, 1, 3}, {1, 3, 1}, {3, 1, 1}, {3, 1, 3}, {3, 3, 1}, {1, 3, 3}},
           kernel),
      line("kernel 7 on some axes", full, T{{1, 1, 7}, {1, 7, 1}, {7, 1, 1}, {7, 1, 7}, {7, 7, 1}, {1, 7, 7}},
           kernel),
      line("stride, kernel 3", {.input = 20}, T{1, {1, 1, 2}, {1, 2, 2}, 2, {2, 2, 3}, {2, 3, 3}, 3}, stride),
      line("stride, kernel 2", {.input = 20, .kernel = 2, .options = {}},
           T{1, {1, 1, 2}, {1, 2, 2}, 2, {2, 2, 3}, 3}, stride),
      line("stride, kernel 5", {.input = 20, .kernel = 5}, T{1, {2, 1, 1}, {2, 2, 1}, 2, {3, 2, 2}, 3},
           stride),
      line("kernel, stride 2", s2, T{2, 3, 4, 5, 6, 7}, kernel),
      line("kernel, stride 3", s3, T{3, 4, 5, 6, 7}, kernel),
      line("dilation", full, T{1, {1, 1, 2}, {1, 2, 2}, 2, {2, 2, 3}, 3, 4}, dilation),
      line("dilation, stride 2", {.input = 20, .options = {.stride = 2}}, T{1, {1, 1, 2}, {1, 2, 2}, 2, 3, 4},
           dilation),
      line("padding, kernel 5", {.kernel = 5}, T{0, 1, 2, 3, 4}, padding),
      line("output_padding, stride 2", s2k3, T{0, {0, 0, 1}, {0, 1, 1}, 1}, output_padding),
      line("output_padding, stride 3", s3, T{0, 1, 2}, output_padding),
      line("batch", small, I{1, 2, 3, 4, 6, 8, 12, 16}, [](Point& p, int64_t n) { p.batch = n; }),
      line("volume", s1, I{1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 16, 17, 20, 23, 27, 32, 33, 40, 47, 48, 57, 64},
           volume),
      line("volume, batch 1", {.batch = 1}, I{1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17, 24, 32, 33, 48, 64},
           volume),
      line("volume, stride 2", s2, I{1, 2, 3, 4, 5, 7, 8, 9, 11, 13, 16, 17, 20, 24, 27, 32, 33, 40}, volume),
      line("volume, 1x1x1", one, I{1, 2, 4, 7, 8, 9, 16, 17, 32, 33, 48, 64}, volume),
      line("volume, 2x2x2 s2", twice, I{1, 2, 4, 7, 8, 9, 16, 17, 24, 32, 33}, volume),
      line("width", full, I{1,  2,  3,  4,  6,  8,  12, 16, 20, 24,  28,  30,  31,  32, 33,
                            34, 40, 48, 56, 62, 63, 64, 66, 98, 126, 127, 128, 130, 160},
           [](Point& p, int64_t w) { p.input.w = w; }),
      line("height", full, I{1, 2, 3, 4, 6, 8, 12, 16, 17, 24, 32, 33, 48, 64},
           [](Point& p, int64_t h) { p.input.h = h; }),
      line("depth", full, I{1, 2, 3, 4, 6, 8, 12, 16, 17, 24, 32, 33, 48, 64},
           [](Point& p, int64_t d) { p.input.d = d; }),
      line("one channel in, volume", {.c_in = 1, .c_out = 16}, I{8, 16, 24, 32, 48, 64}, volume),
      line("one channel out, volume", {.c_in = 16, .c_out = 1}, I{8, 16, 24, 32, 48, 64}, volume),
  };
}

/// Every geometry once, the most important ones first.
inline std::vector<Call> all_calls() {
  std::vector<Call> calls;
  const auto add = [&](const Call& call) {
    const auto same = std::ranges::find(calls, call.geometry, &Call::geometry);
    if (same == calls.end()) return calls.push_back(call);
    if (std::ranges::find(same->names, call.names[0]) == same->names.end())
      same->names.push_back(call.names[0]);
    if (same->unused != call.unused) same->unused.reset();
  };
  for (const Problem& p : problems) add({{vox::str("level1/", p.number)}, geometry_of(p)});
  for (const Call& call : network_calls()) add(call);
  for (const Level2& p : level2) add({{vox::str("level2/", p.number)}, geometry_of(p)});
  for (const Line& l : all_lines())
    for (size_t i = 0; i < l.points.size(); ++i) add({{name_of(l, i)}, geometry_of(l.points[i])});
  return calls;
}
