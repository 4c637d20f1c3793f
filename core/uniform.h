#pragma once

#include <cstdint>

#include <voxgrad/core/half.h>
#include <voxgrad/core/philox.h>

/// How one random block becomes elements; all devices share this code. A distribution D over T has D::count,
/// the number of elements that a block gives, and `draw(words, out)`. Element i of a tensor is number i %
/// count of block i / count.
namespace vox::detail {

template <class T>
struct Uniform;

template <>
struct Uniform<float> {
  using Element = float;
  static constexpr int count = 4;
  VOX_HOST_DEVICE void draw(PhiloxWords w, float* out) const {
    for (int i = 0; i < 4; ++i) out[i] = uniform_f32(w.word[i]);
  }
};

template <>
struct Uniform<double> {
  using Element = double;
  static constexpr int count = 2;
  VOX_HOST_DEVICE void draw(PhiloxWords w, double* out) const {
    for (int i = 0; i < 2; ++i) out[i] = uniform_f64(join_words(w.word[2 * i], w.word[2 * i + 1]));
  }
};

/// The numbers of D, a distribution of floats, in a 16-bit type: rounded to nearest, or down if `down`.
template <class D, class T, bool down>
struct Narrowed {
  using Element = T;
  static constexpr int count = D::count;
  VOX_HOST_DEVICE void draw(PhiloxWords w, T* out) const {
    float wide[count];
    D{}.draw(w, wide);
    for (int i = 0; i < count; ++i) {
      out[i] = T(wide[i]);
      if (down && out[i] > wide[i])
        out[i] = T::from_bits(static_cast<uint16_t>(out[i].bits - 1));  // the next below, as out[i] > 0
    }
  }
};
template <>
struct Uniform<bfloat16> : Narrowed<Uniform<float>, bfloat16, true> {};
template <>
struct Uniform<float16> : Narrowed<Uniform<float>, float16, true> {};
/// Writes block `block` of a tensor of `numel` elements at `data`.
template <class D>
VOX_HOST_DEVICE inline void write_block(const D& distribution, uint64_t seed, uint64_t offset, int64_t block,
                                        int64_t numel, typename D::Element* data) {
  typename D::Element elements[D::count];
  distribution.draw(philox_block(seed, offset, static_cast<uint64_t>(block)), elements);
  const int64_t first = block * D::count;
  for (int i = 0; i < D::count && first + i < numel; ++i) data[first + i] = elements[i];
}

}  // namespace vox::detail
