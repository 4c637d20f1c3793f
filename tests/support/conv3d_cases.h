#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include <voxgrad/core/parallel.h>

#include "tests/data_dir.h"
#include "tests/support/conv3d.h"

// The table of real parameter sets in tests/data, and helpers to compare large ones.

namespace vox::testing {

inline Triple triple_of(const nlohmann::json& j) {
  return {j[0].get<int64_t>(), j[1].get<int64_t>(), j[2].get<int64_t>()};
}

/// Arguments of conv_transpose3d that the tests or models of another framework use.
struct RealCase {
  std::string id;
  int64_t batch, in_channels, out_channels;
  Triple input, kernel, output;
  ConvTranspose3dOptions options;
  bool bias, legal;
  double multiply_adds;

  Shape input_shape() const { return {batch, in_channels, input.d, input.h, input.w}; }
  Shape output_shape() const { return {batch, out_channels, output.d, output.h, output.w}; }
  Shape weight_shape() const {
    return {in_channels, out_channels / options.groups, kernel.d, kernel.h, kernel.w};
  }
  bool large() const { return multiply_adds > 1e8; }

  Conv3dGeometry geometry() const {
    return detail::conv_transpose3d_geometry(id.c_str(), input_shape(), weight_shape(), options);
  }
  vox::reference::Conv3d reference() const {
    return {.batch = batch,
            .big_channels = out_channels,
            .small_channels = in_channels,
            .groups = options.groups,
            .big = array_of(output),
            .small = array_of(input),
            .kernel = array_of(kernel),
            .stride = array_of(options.stride),
            .padding = array_of(options.padding),
            .dilation = array_of(options.dilation)};
  }
};

inline std::vector<RealCase> read_cases() {
  std::ifstream file(std::string(data_dir) + "/conv_transpose3d_cases.json");
  std::vector<RealCase> cases;
  for (const nlohmann::json& j : nlohmann::json::parse(file)) {
    cases.push_back({.id = j["id"],
                     .batch = j["N"],
                     .in_channels = j["Cin"],
                     .out_channels = j["Cout"],
                     .input = triple_of(j["in"]),
                     .kernel = triple_of(j["k"]),
                     .output = triple_of(j["out"]),
                     .options = {.stride = triple_of(j["s"]),
                                 .padding = triple_of(j["p"]),
                                 .output_padding = triple_of(j["op"]),
                                 .groups = j["groups"],
                                 .dilation = triple_of(j["dil"])},
                     .bias = j["bias"],
                     .legal = j["legal"],
                     .multiply_adds = j["macs"]});
  }
  return cases;
}

/// Like integers(), but computed by all threads, for large counts.
inline std::vector<float> many_integers(int64_t n, uint64_t seed) {
  std::vector<float> v(static_cast<size_t>(n));
  parallel_for(n, 1 << 20, [&](int64_t begin, int64_t end) {
    std::minstd_rand random(static_cast<unsigned>(seed * 1000003 + static_cast<uint64_t>(begin >> 20) + 1));
    for (int64_t i = begin; i < end; ++i)
      v[static_cast<size_t>(i)] = static_cast<float>(random() / 7 % 9) - 4;
  });
  return v;
}

/// Compares `count` random elements of t, and the first and the last, with `expected(index)`.
template <class F>
void compare_samples(const char* what, const Tensor& t, int count, F expected) {
  const std::vector<float> got = t.to_vector<float>();
  std::mt19937_64 random(5);
  for (int i = 0; i < count + 2; ++i) {
    const size_t j = i == 0 ? 0 : i == 1 ? got.size() - 1 : random() % got.size();
    EXPECT_EQ(got[j], expected(static_cast<int64_t>(j))) << what << " at " << j;
  }
}

}  // namespace vox::testing
