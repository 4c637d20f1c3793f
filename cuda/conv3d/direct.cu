// The conv3d family by its definition, o = i * stride - padding + k * dilation, on any geometry.
//
//   conv3d              small[n,sc,i] = bias[sc] + sum over k, bc of big[n,bc,o] * weight[sc,bc,k]
//   conv_transpose3d    big[n,bc,o]   = bias[bc] + sum over k, sc of small[n,sc,i] * weight[sc,bc,k]
//   conv3d_weight_grad  dweight[sc,bc,k] = sum over n, i of big[n,bc,o] * small[n,sc,i]
//
// What a thread owns: one output of the forward ops. In the weight gradient a block owns `weights_per_block`
// weights and sums them in an order that the geometry fixes. Every result has one owner, so there are no
// atomics and no workspace (except for the bias gradient, bias_grad.cu), and the bits never change. What
// limits it: each multiply-add needs two loads (one, and 1/weights_per_block, for weight_grad), which keep
// the load units busy at a few per cent of the arithmetic peak. The other kernels keep tiles of both operands
// in shared memory, for the tensor cores. This file remains as their reference in the tests, and as the
// fallback.
//
// Axis indices are 32-bit where the geometry allows, since 64-bit ones cost several instructions; offsets of
// channels are always 64-bit. 16-bit tensors are summed in f32 and rounded once.

#include <voxgrad/cuda/conv3d/call.h>
#include <voxgrad/cuda/conv3d/model/ranges.h>
#include <voxgrad/cuda/runtime/launch.h>
#include <voxgrad/ops/conv3d_lattice.h>

#include <algorithm>
#include <numeric>

namespace vox::cuda::conv {

namespace {

// ---- Helpers ----------------------------------------------------------------------------------------------

template <class Index>
struct Axes {
  Index d, h, w;
};

/// What is the same for all threads: Conv3dGeometry in the kernel's index type.
template <class Index>
struct Params {
  int64_t batch, big_channels, small_channels;
  int64_t big_per_group, small_per_group;
  int64_t big_cells, small_cells, taps;
  Axes<Index> big, small, kernel, stride, padding, dilation;
  Axes<Index> tap_step, cell_step;  // conv_transpose3d: distances between touching taps
};

template <class Index>
Axes<Index> axes(const Triple& t) {
  return {static_cast<Index>(t.d), static_cast<Index>(t.h), static_cast<Index>(t.w)};
}

template <class Index>
Params<Index> params(const Conv3dGeometry& g) {
  Triple tap_step, cell_step;
  for (int64_t axis = 0; axis < 3; ++axis) {
    const int64_t common = std::gcd(g.stride[axis], g.dilation[axis]);
    tap_step[axis] = g.stride[axis] / common;
    cell_step[axis] = g.dilation[axis] / common;
  }
  return {g.batch,
          g.big_channels,
          g.small_channels,
          g.big_per_group(),
          g.small_per_group(),
          g.big_cells(),
          g.small_cells(),
          g.taps(),
          axes<Index>(g.big),
          axes<Index>(g.small),
          axes<Index>(g.kernel),
          axes<Index>(g.stride),
          axes<Index>(g.padding),
          axes<Index>(g.dilation),
          axes<Index>(tap_step),
          axes<Index>(cell_step)};
}

/// Whether the indices of the axes and the numbers of cells fit 32 bits, with a margin for sums of them.
bool fits_32_bits(const Conv3dGeometry& g) {
  return axes_fit_32_bits(g) && all_fit({g.big_cells(), g.small_cells()}, 1 << 28);
}

/// Calls `f(T{}, Index{})`.
template <class F>
void visit(const char* op, const Tensor& t, const Conv3dGeometry& g, F f) {
  visit_floating_storage(op, t.dtype(), [&]<class T>(T) {
    if (fits_32_bits(g))
      f(T{}, int32_t{});
    else
      f(T{}, int64_t{});
  });
}

/// A cell of a grid from its row-major number.
template <class Index>
__device__ Axes<Index> cell_at(Index flat, const Axes<Index>& extent) {
  const Index row = flat / extent.w;
  return {row / extent.h, row % extent.h, flat % extent.w};
}

/// The coarse cells [first, last) whose tap at `reach` = k * dilation falls inside the fine grid.
template <class Index>
struct Range {
  Index first, last;
};
template <class Index>
__device__ Range<Index> touching(Index reach, Index big, Index small, Index stride, Index padding) {
  const Index before = padding - reach;  // cells i with i * stride < before are outside
  const Index end = big - 1 + before;    // and those with i * stride > end
  const Index first = before > 0 ? (before - 1) / stride + 1 : 0;
  const Index last = end < 0 ? 0 : min(small, end / stride + 1);
  return {first, max(first, last)};
}

/// Sum of `value` over the block, returned to every thread. The tree's shape depends on the block size only.
template <int block, class T>
__device__ T block_sum(T value, T* memory) {
  memory[threadIdx.x] = value;
  for (int half = block / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) memory[threadIdx.x] += memory[threadIdx.x + half];
  }
  __syncthreads();
  const T sum = memory[0];
  __syncthreads();  // all reads are done: the memory may be used again
  return sum;
}

// ---- Kernels ----------------------------------------------------------------------------------------------

// A block computes 128 outputs of one image and channel, neighbours along w in neighbouring threads. Their
// loads coalesce, and all threads read the same weight. Small blocks waste little of a small grid.
constexpr int outputs_per_block = 128;

template <class T, class Index>
__global__ void __launch_bounds__(outputs_per_block)
    conv3d_kernel(const T* big, const T* weight, const T* bias, T* small, Params<Index> g,
                  const int64_t* only_if) {
  if (only_if && *only_if == 0) return;
  const int64_t blocks_per_volume = (g.small_cells + outputs_per_block - 1) / outputs_per_block;
  const int64_t blocks = blocks_per_volume * g.batch * g.small_channels;
  for (int64_t job = blockIdx.x; job < blocks; job += gridDim.x) {
    const int64_t volume = job / blocks_per_volume;  // image and channel
    const int64_t flat = job % blocks_per_volume * outputs_per_block + threadIdx.x;
    if (flat >= g.small_cells) continue;
    const int64_t n = volume / g.small_channels, sc = volume % g.small_channels;
    const int64_t group = sc / g.small_per_group;
    const Axes<Index> i = cell_at(static_cast<Index>(flat), g.small);
    const T* x = big + (n * g.big_channels + group * g.big_per_group) * g.big_cells;
    const T* w = weight + sc * g.big_per_group * g.taps;

    opmath_t<T> sum = bias ? bias[sc] : T(0);
    for (Index kd = 0; kd < g.kernel.d; ++kd) {
      const Index d = i.d * g.stride.d - g.padding.d + kd * g.dilation.d;
      if (d < 0 || d >= g.big.d) continue;
      for (Index kh = 0; kh < g.kernel.h; ++kh) {
        const Index h = i.h * g.stride.h - g.padding.h + kh * g.dilation.h;
        if (h < 0 || h >= g.big.h) continue;
        for (Index kw = 0; kw < g.kernel.w; ++kw) {
          const Index o = i.w * g.stride.w - g.padding.w + kw * g.dilation.w;
          if (o < 0 || o >= g.big.w) continue;
          const T* from = x + (d * g.big.h + h) * g.big.w + o;
          const T* with = w + (kd * g.kernel.h + kh) * g.kernel.w + kw;
#pragma unroll 4
          for (int64_t b = 0; b < g.big_per_group; ++b) sum += from[b * g.big_cells] * with[b * g.taps];
        }
      }
    }
    small[volume * g.small_cells + flat] = T(sum);
  }
}

template <class T, class Index>
__global__ void __launch_bounds__(outputs_per_block)
    conv_transpose3d_kernel(const T* small, const T* weight, const T* bias, T* big, Params<Index> g,
                            const int64_t* only_if) {
  if (only_if && *only_if == 0) return;
  const int64_t blocks_per_volume = (g.big_cells + outputs_per_block - 1) / outputs_per_block;
  const int64_t blocks = blocks_per_volume * g.batch * g.big_channels;
  const int64_t weight_step = g.big_per_group * g.taps;
  for (int64_t job = blockIdx.x; job < blocks; job += gridDim.x) {
    const int64_t volume = job / blocks_per_volume;  // image and channel
    const int64_t flat = job % blocks_per_volume * outputs_per_block + threadIdx.x;
    if (flat >= g.big_cells) continue;
    const int64_t n = volume / g.big_channels, bc = volume % g.big_channels;
    const int64_t first = bc / g.big_per_group * g.small_per_group;  // channel of small
    const Axes<Index> o = cell_at(static_cast<Index>(flat), g.big);
    const T* x = small + (n * g.small_channels + first) * g.small_cells;
    const T* w = weight + (first * g.big_per_group + bc % g.big_per_group) * g.taps;

    const auto td = first_touching_tap(o.d, g.kernel.d, g.stride.d, g.padding.d, g.dilation.d, g.tap_step.d);
    const auto th = first_touching_tap(o.h, g.kernel.h, g.stride.h, g.padding.h, g.dilation.h, g.tap_step.h);
    const auto tw = first_touching_tap(o.w, g.kernel.w, g.stride.w, g.padding.w, g.dilation.w, g.tap_step.w);
    opmath_t<T> sum = bias ? bias[bc] : T(0);
    for (Index kd = td.tap, d = td.cell; kd < g.kernel.d; kd += g.tap_step.d, d -= g.cell_step.d) {
      if (d < 0 || d >= g.small.d) continue;
      for (Index kh = th.tap, h = th.cell; kh < g.kernel.h; kh += g.tap_step.h, h -= g.cell_step.h) {
        if (h < 0 || h >= g.small.h) continue;
        for (Index kw = tw.tap, i = tw.cell; kw < g.kernel.w; kw += g.tap_step.w, i -= g.cell_step.w) {
          if (i < 0 || i >= g.small.w) continue;
          const T* from = x + (d * g.small.h + h) * g.small.w + i;
          const T* with = w + (kd * g.kernel.h + kh) * g.kernel.w + kw;
#pragma unroll 4
          for (int64_t s = 0; s < g.small_per_group; ++s)
            sum += from[s * g.small_cells] * with[s * weight_step];
        }
      }
    }
    big[volume * g.big_cells + flat] = T(sum);
  }
}

// 256 threads sum over one weight's images and cells; four channels of small share each load of big.
constexpr int summing_threads = 256;
constexpr int weights_per_block = 4;

/// Teams of `team` threads (a power of two) take rows along w in turn, so that few threads idle on short
/// rows.
template <class T, class Index>
__global__ void __launch_bounds__(summing_threads)
    weight_grad_kernel(const T* big, const T* small, T* dweight, Params<Index> g, int team,
                       const int64_t* only_if) {
  if (only_if && *only_if == 0) return;
  __shared__ opmath_t<T> memory[summing_threads];
  const int lane = threadIdx.x % team, first_row = threadIdx.x / team, row_step = summing_threads / team;
  const int64_t quads = (g.small_per_group + weights_per_block - 1) / weights_per_block;  // in a group
  const int64_t jobs = g.small_channels / g.small_per_group * quads * g.big_per_group * g.taps;
  for (int64_t job = blockIdx.x; job < jobs; job += gridDim.x) {
    const Axes<Index> k = cell_at(static_cast<Index>(job % g.taps), g.kernel);
    const int64_t b = job / g.taps % g.big_per_group, quad = job / g.taps / g.big_per_group;
    const int64_t group = quad / quads, in_group = quad % quads * weights_per_block;
    const int64_t sc = group * g.small_per_group + in_group, bc = group * g.big_per_group + b;
    const int64_t left = g.small_per_group - in_group;
    const int count = left < weights_per_block ? static_cast<int>(left) : weights_per_block;

    const Axes<Index> reach{k.d * g.dilation.d, k.h * g.dilation.h, k.w * g.dilation.w};
    const auto in_d = touching(reach.d, g.big.d, g.small.d, g.stride.d, g.padding.d);
    const auto in_h = touching(reach.h, g.big.h, g.small.h, g.stride.h, g.padding.h);
    const auto in_w = touching(reach.w, g.big.w, g.small.w, g.stride.w, g.padding.w);
    const Index height = in_h.last - in_h.first, rows = (in_d.last - in_d.first) * height;

    opmath_t<T> sum[weights_per_block] = {};
    for (int64_t n = 0; n < g.batch; ++n) {
      const T* x = big + (n * g.big_channels + bc) * g.big_cells;
      const T* y = small + (n * g.small_channels + sc) * g.small_cells;
      for (Index row = first_row; row < rows; row += row_step) {
        const Index d = in_d.first + row / height, h = in_h.first + row % height;
        const Index od = d * g.stride.d - g.padding.d + reach.d, oh = h * g.stride.h - g.padding.h + reach.h;
        const T* x_row = x + (od * g.big.h + oh) * g.big.w;
        const T* y_row = y + (d * g.small.h + h) * g.small.w;
        for (Index w = in_w.first + lane; w < in_w.last; w += team) {
          const opmath_t<T> value = x_row[w * g.stride.w - g.padding.w + reach.w];
#pragma unroll
          for (int r = 0; r < weights_per_block; ++r)
            if (r < count) sum[r] += value * y_row[r * g.small_cells + w];
        }
      }
    }
#pragma unroll
    for (int r = 0; r < weights_per_block; ++r) {
      const opmath_t<T> total = block_sum<summing_threads>(sum[r], memory);
      if (threadIdx.x == 0 && r < count)
        dweight[((sc + r) * g.big_per_group + b) * g.taps + job % g.taps] = T(total);
    }
  }
}

// ---- Launchers --------------------------------------------------------------------------------------------

/// Few blocks if the kernel may have nothing to do, because each must start to find that out.
unsigned grid(int64_t jobs, const Tensor& only_if) {
  return std::min(grid_for(jobs, 1), only_if.defined() ? 2048u : ~0u);
}

/// The number of blocks for the outputs of `volumes` of `cells` each.
int64_t forward_jobs(int64_t volumes, int64_t cells) {
  return volumes * ((cells + outputs_per_block - 1) / outputs_per_block);
}

/// The smallest power of two that spans a row, at most a warp.
int team_for(int64_t width) {
  int team = 1;
  while (team < 32 && team < width) team *= 2;
  return team;
}

}  // namespace

void direct(const Conv3dCall& call) {
  const auto& [transposed, input, weight, bias, output, g, only_if, failed] = call;
  const Launch launch(call.op(), output, {&input, &weight, &bias, &only_if});
  visit(call.op(), input, g, [&]<class T, class Index>(T, Index) {
    auto* const kernel = transposed ? conv_transpose3d_kernel<T, Index> : conv3d_kernel<T, Index>;
    const int64_t volumes = g.batch * (transposed ? g.big_channels : g.small_channels),
                  cells = transposed ? g.big_cells() : g.small_cells();
    kernel<<<grid(forward_jobs(volumes, cells), only_if), outputs_per_block, 0, launch.stream()>>>(
        vox::detail::ptr<T>(input), vox::detail::ptr<T>(weight), vox::detail::ptr_or_null<T>(bias),
        vox::detail::mutable_ptr<T>(output), params<Index>(g), vox::detail::ptr_or_null<int64_t>(only_if));
  });
  launch.check();
}

void direct_weight_grad(const WeightGradCall& call) {
  const auto& [big, small, dweight, g, only_if, failed] = call;
  const Launch launch("conv3d_weight_grad", dweight, {&big, &small, &only_if});
  visit("conv3d_weight_grad", big, g, [&]<class T, class Index>(T, Index) {
    const int64_t jobs = (dweight.numel() + weights_per_block - 1) / weights_per_block;
    weight_grad_kernel<T, Index><<<grid(jobs, only_if), summing_threads, 0, launch.stream()>>>(
        vox::detail::ptr<T>(big), vox::detail::ptr<T>(small), vox::detail::mutable_ptr<T>(dweight),
        params<Index>(g), team_for(g.small.w), vox::detail::ptr_or_null<int64_t>(only_if));
  });
  launch.check();
}

}  // namespace vox::cuda::conv
