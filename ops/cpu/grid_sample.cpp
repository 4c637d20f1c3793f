// grid_sample, its adjoint, and the gradient of its grid. Points go in blocks: their taps are found once, for
// all channels. In the adjoint a chunk owns some channels of a sample and adds points in their order, so it
// needs no atomics; the other two own points.

#include <voxgrad/ops/cpu/isa.h>
#include <voxgrad/ops/cpu/simd/grid_sample.h>
#include <voxgrad/ops/cpu/tasks.h>
#include <voxgrad/ops/layer_kernels.h>

#include <algorithm>

namespace vox::cpu {

namespace {

using detail::GridSampling;
using simd::grid_block;
using simd::GridTaps;

constexpr ByIsa loops = VOX_BY_ISA(grid_sample_kernels);

/// f(sample, first point, number of points), for all blocks of all samples, in parallel.
template <class F>
void for_blocks(const GridSampling& s, F f) {
  const int64_t blocks = (s.points + grid_block - 1) / grid_block;
  for_tasks(s.batch * blocks, 16 / std::max<int64_t>(1, s.channels), [&](int64_t i) {
    const int64_t first = i % blocks * grid_block;
    f(i / blocks, first, std::min(grid_block, s.points - first));
  });
}

}  // namespace

void grid_sample(const Tensor& x, const Tensor& grid, const GridSampling& s, Tensor& y) {
  visit_floating("grid_sample", y.dtype(), [&]<class T>(T) {
    const auto& of = loops.of<T>();
    const T *from = detail::ptr<T>(x), *points = detail::ptr<T>(grid);
    T* const to = detail::mutable_ptr<T>(y);
    for_blocks(s, [&](int64_t n, int64_t first, int64_t count) {
      GridTaps<T> taps;
      of.find(s, points + (n * s.points + first) * s.axes, count, taps);
      for (int64_t plane = n * s.channels; plane < (n + 1) * s.channels; ++plane)
        of.gather(s, taps, from + plane * s.cells(), to + plane * s.points + first, count);
    });
  });
}

void grid_sample_adjoint(const Tensor& y, const Tensor& grid, const GridSampling& s, Tensor& x) {
  visit_floating("grid_sample", x.dtype(), [&]<class T>(T) {
    const auto& of = loops.of<T>();
    const T *from = detail::ptr<T>(y), *points = detail::ptr<T>(grid);
    T* const to = detail::mutable_ptr<T>(x);
    // Each chunk finds the taps of its sample, so there are no more than keep threads busy.
    const int64_t wanted = std::clamp<int64_t>(16 / s.batch, 1, (s.channels + 3) / 4);
    const int64_t channels = (s.channels + wanted - 1) / wanted;
    const int64_t chunks = (s.channels + channels - 1) / channels;
    for_tasks(s.batch * chunks, 1, [&](int64_t i) {
      const int64_t n = i / chunks, low = n * s.channels + i % chunks * channels;
      const int64_t high = std::min(low + channels, (n + 1) * s.channels);
      std::fill(to + low * s.cells(), to + high * s.cells(), T(0));
      for (int64_t first = 0; first < s.points; first += grid_block) {
        const int64_t count = std::min(grid_block, s.points - first);
        GridTaps<T> taps;
        of.find(s, points + (n * s.points + first) * s.axes, count, taps);
        for (int64_t plane = low; plane < high; ++plane)
          of.scatter(s, taps, from + plane * s.points + first, to + plane * s.cells(), count);
      }
    });
  });
}

void grid_sample_gradient(const Tensor& g, const Tensor& x, const Tensor& grid, const GridSampling& s,
                          Tensor& grad_grid) {
  visit_floating("grid_sample", grad_grid.dtype(), [&]<class T>(T) {
    const auto& of = loops.of<T>();
    const T *from = detail::ptr<T>(x), *points = detail::ptr<T>(grid), *grad_y = detail::ptr<T>(g);
    T* const grad_points = detail::mutable_ptr<T>(grad_grid);
    for_blocks(s, [&](int64_t n, int64_t first, int64_t count) {
      GridTaps<T> taps;
      T sums[3][grid_block] = {};
      const int64_t begin = (n * s.points + first) * s.axes;
      of.find(s, points + begin, count, taps);
      for (int64_t plane = n * s.channels; plane < (n + 1) * s.channels; ++plane)
        of.slopes(s, taps, from + plane * s.cells(), grad_y + plane * s.points + first, sums, count);
      for (int64_t i = 0; i < count; ++i)
        for (int axis = 0; axis < s.axes; ++axis) grad_points[begin + i * s.axes + axis] = sums[2 - axis][i];
    });
  });
}

}  // namespace vox::cpu
