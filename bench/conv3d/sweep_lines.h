#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include <voxgrad/ops/conv3d.h>

/// The geometries of the sweep (bench/conv3d/sweep.cu).
namespace sweep {

using vox::Triple;

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

  void add(const std::string& label, const Point& point) {
    labels.push_back(label);
    points.push_back(point);
  }
};

/// The line along which `change(point, value)` changes one parameter of `base`.
template <class T, class Change>
Line line(const std::string& name, const Point& base, std::initializer_list<T> values, Change change) {
  Line made{name};
  for (const T& value : values) {
    Point point = base;
    change(point, value);
    made.add(vox::str(value), point);
  }
  return made;
}

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

}  // namespace sweep
