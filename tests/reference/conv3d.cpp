#include "tests/reference/conv3d.h"

namespace vox::reference {

namespace {

using Index = std::array<int64_t, 3>;

/// Row-major indices (d, h, w) of all cells of a grid.
std::vector<Index> cells_of(const Index& extent) {
  std::vector<Index> cells;
  for (int64_t d = 0; d < extent[0]; ++d)
    for (int64_t h = 0; h < extent[1]; ++h)
      for (int64_t w = 0; w < extent[2]; ++w) cells.push_back({d, h, w});
  return cells;
}

int64_t flat(const Index& cell, const Index& extent) {
  return (cell[0] * extent[1] + cell[1]) * extent[2] + cell[2];
}

Index unflat(int64_t flat, const Index& extent) {
  return {flat / extent[2] / extent[1], flat / extent[2] % extent[1], flat % extent[2]};
}

/// The fine cell that tap k of coarse cell i touches; false if there is none.
bool fine_cell(const Conv3d& c, const Index& i, const Index& k, Index& o) {
  for (size_t a = 0; a < 3; ++a) {
    o[a] = i[a] * c.stride[a] - c.padding[a] + k[a] * c.dilation[a];
    if (o[a] < 0 || o[a] >= c.big[a]) return false;
  }
  return true;
}

/// The coarse cell whose tap k touches fine cell o; false if there is none.
bool coarse_cell(const Conv3d& c, const Index& o, const Index& k, Index& i) {
  for (size_t a = 0; a < 3; ++a) {
    const int64_t distance = o[a] + c.padding[a] - k[a] * c.dilation[a];
    if (distance < 0 || distance % c.stride[a] != 0) return false;
    i[a] = distance / c.stride[a];
    if (i[a] >= c.small[a]) return false;
  }
  return true;
}

}  // namespace

template <class T>
double conv3d_at(const Conv3d& c, const T* big, const T* weight, int64_t small_index) {
  const Index i = unflat(small_index % c.small_cells(), c.small);
  const int64_t sc = small_index / c.small_cells() % c.small_channels;
  const int64_t n = small_index / c.small_cells() / c.small_channels;
  const int64_t first = sc / c.small_per_group() * c.big_per_group();
  double sum = 0;
  for (int64_t tap = 0; tap < c.taps(); ++tap) {
    Index o;
    if (!fine_cell(c, i, unflat(tap, c.kernel), o)) continue;
    for (int64_t b = 0; b < c.big_per_group(); ++b)
      sum += double(big[(n * c.big_channels + first + b) * c.big_cells() + flat(o, c.big)]) *
             double(weight[(sc * c.big_per_group() + b) * c.taps() + tap]);
  }
  return sum;
}

template <class T>
double conv_transpose3d_at(const Conv3d& c, const T* small, const T* weight, int64_t big_index) {
  const Index o = unflat(big_index % c.big_cells(), c.big);
  const int64_t bc = big_index / c.big_cells() % c.big_channels;
  const int64_t n = big_index / c.big_cells() / c.big_channels;
  const int64_t first = bc / c.big_per_group() * c.small_per_group();
  double sum = 0;
  for (int64_t tap = 0; tap < c.taps(); ++tap) {
    Index i;
    if (!coarse_cell(c, o, unflat(tap, c.kernel), i)) continue;
    for (int64_t sc = first; sc < first + c.small_per_group(); ++sc)
      sum += double(small[(n * c.small_channels + sc) * c.small_cells() + flat(i, c.small)]) *
             double(weight[(sc * c.big_per_group() + bc % c.big_per_group()) * c.taps() + tap]);
  }
  return sum;
}

template <class T>
double weight_grad_at(const Conv3d& c, const T* big, const T* small, int64_t weight_index) {
  const Index k = unflat(weight_index % c.taps(), c.kernel);
  const int64_t b = weight_index / c.taps() % c.big_per_group();
  const int64_t sc = weight_index / c.taps() / c.big_per_group();
  const int64_t bc = sc / c.small_per_group() * c.big_per_group() + b;
  double sum = 0;
  for (const Index& i : cells_of(c.small)) {
    Index o;
    if (!fine_cell(c, i, k, o)) continue;
    for (int64_t n = 0; n < c.batch; ++n)
      sum += double(big[(n * c.big_channels + bc) * c.big_cells() + flat(o, c.big)]) *
             double(small[(n * c.small_channels + sc) * c.small_cells() + flat(i, c.small)]);
  }
  return sum;
}

template double conv3d_at(const Conv3d&, const float*, const float*, int64_t);
template double conv3d_at(const Conv3d&, const double*, const double*, int64_t);
template double conv_transpose3d_at(const Conv3d&, const float*, const float*, int64_t);
template double conv_transpose3d_at(const Conv3d&, const double*, const double*, int64_t);
template double weight_grad_at(const Conv3d&, const float*, const float*, int64_t);
template double weight_grad_at(const Conv3d&, const double*, const double*, int64_t);

Values conv3d(const Conv3d& c, const Values& big, const Values& weight, const Values& bias) {
  Values small;
  for (int64_t i = 0; i < c.small_numel(); ++i) {
    const auto channel = static_cast<size_t>(i / c.small_cells() % c.small_channels);
    small.push_back(conv3d_at(c, big.data(), weight.data(), i) + (bias.empty() ? 0 : bias[channel]));
  }
  return small;
}

Values conv_transpose3d(const Conv3d& c, const Values& small, const Values& weight, const Values& bias) {
  Values big;
  for (int64_t o = 0; o < c.big_numel(); ++o) {
    const auto channel = static_cast<size_t>(o / c.big_cells() % c.big_channels);
    big.push_back(conv_transpose3d_at(c, small.data(), weight.data(), o) +
                  (bias.empty() ? 0 : bias[channel]));
  }
  return big;
}

Values weight_grad(const Conv3d& c, const Values& big, const Values& small) {
  Values weight;
  for (int64_t w = 0; w < c.weight_numel(); ++w)
    weight.push_back(weight_grad_at(c, big.data(), small.data(), w));
  return weight;
}

Values bias_grad(const Values& grad, int64_t batch, int64_t channels, int64_t cells) {
  Values bias(static_cast<size_t>(channels), 0.0);
  for (int64_t i = 0; i < batch * channels * cells; ++i)
    bias[static_cast<size_t>(i / cells % channels)] += grad[static_cast<size_t>(i)];
  return bias;
}

}  // namespace vox::reference
