#pragma once

#include <cstdint>

#include <voxgrad/core/normal.h>
#include <voxgrad/core/uniform.h>

// The distributions besides Uniform (core/uniform.h).

namespace vox::detail {

template <class T>
struct Normal;

/// Words (0, 1) and words (2, 3) each make a pair of normals: 32-bit uniforms, computed in double, rounded
/// once.
template <>
struct Normal<float> {
  using Element = float;
  static constexpr int count = 4;
  VOX_HOST_DEVICE void draw(PhiloxWords w, float* out) const {
    for (int i = 0; i < 4; i += 2) {
      const NormalPair pair = box_muller((w.word[i] + 1.0) * 0x1p-32, w.word[i + 1] * 0x1p-32);
      out[i] = static_cast<float>(pair.first);
      out[i + 1] = static_cast<float>(pair.second);
    }
  }
};

/// Makes one pair from two 53-bit uniforms.
template <>
struct Normal<double> {
  using Element = double;
  static constexpr int count = 2;
  VOX_HOST_DEVICE void draw(PhiloxWords w, double* out) const {
    const uint64_t u = join_words(w.word[0], w.word[1]) >> 11;
    const NormalPair pair =
        box_muller(static_cast<double>(u + 1) * 0x1p-53, uniform_f64(join_words(w.word[2], w.word[3])));
    out[0] = pair.first;
    out[1] = pair.second;
  }
};

template <>
struct Normal<bfloat16> : Narrowed<Normal<float>, bfloat16, false> {};
template <>
struct Normal<float16> : Narrowed<Normal<float>, float16, false> {};

/// The upper 64 bits of a * b.
VOX_HOST_DEVICE inline uint64_t multiply_high(uint64_t a, uint64_t b) {
  const uint64_t a0 = static_cast<uint32_t>(a), a1 = a >> 32, b0 = static_cast<uint32_t>(b), b1 = b >> 32;
  const uint64_t middle = a1 * b0 + (a0 * b0 >> 32);
  const uint64_t middle2 = a0 * b1 + static_cast<uint32_t>(middle);
  return a1 * b1 + (middle >> 32) + (middle2 >> 32);
}

/// low + floor(w / 2^64 * range) of a 64-bit word w: each value's probability is within 2^-64 of 1 / range.
template <class T>
struct Integers {
  using Element = T;
  static constexpr int count = 2;
  int64_t low;
  uint64_t range;
  VOX_HOST_DEVICE void draw(PhiloxWords w, T* out) const {
    for (int i = 0; i < 2; ++i) {
      const uint64_t step = multiply_high(join_words(w.word[2 * i], w.word[2 * i + 1]), range);
      out[i] = static_cast<T>(static_cast<int64_t>(static_cast<uint64_t>(low) + step));
    }
  }
};

}  // namespace vox::detail
