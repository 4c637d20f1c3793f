#pragma once

#include <nlohmann/json.hpp>

#include "tests/support/conv3d.h"
#include "tests/support/test.h"

// The table of real parameter sets in tests/data, and helpers to compare large ones.

namespace vox::testing {

/// Arguments of conv_transpose3d that the tests or models of another framework use.
struct RealCase : TransposeCase {
  Triple output;
  bool bias, legal;
  double multiply_adds;

  Shape output_shape() const { return {batch, out_channels, output.d, output.h, output.w}; }
  bool large() const { return multiply_adds > 1e8; }
};

inline std::vector<RealCase> read_cases() {
  std::ifstream file(std::string(data_dir) + "/conv_transpose3d_cases.json");
  std::vector<RealCase> cases;
  for (const nlohmann::json& j : nlohmann::json::parse(file)) {
    const auto triple = [&](const char* key) {
      return Triple(j[key][0].get<int64_t>(), j[key][1].get<int64_t>(), j[key][2].get<int64_t>());
    };
    cases.push_back({{j["id"].get<std::string>(), j["N"], j["Cin"], j["Cout"], triple("in"), triple("k"),
                      triple("s"), triple("p"), triple("op"), triple("dil"), j["groups"]},
                     triple("out"),
                     j["bias"],
                     j["legal"],
                     j["macs"]});
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
