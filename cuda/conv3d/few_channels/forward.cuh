#pragma once

// conv3d and conv_transpose3d of groups with few channels, on the ordinary f32 units.
//
// With few channels tensor cores multiply mostly padding, and the time is that of moving the bytes. So every
// element should come from global memory once, and be used often after that. A block loads a window of its
// group's input into shared memory, with the halo that its taps reach, and the weights beside it. A thread
// owns a run of 8 or 16 cells along h of some output channels, in registers. It reads a column of rows once
// for all taps along h (taps + 7 numbers for 8 * taps products). Lanes are neighbours along w, so their
// columns lie in different banks, and their results in one line.
//
// conv_transpose3d: along d and h a thread's outputs belong to one phase. Along w, lanes are neighbouring
// outputs of any phase, each with weights of its own. So stores are contiguous, and no product with an
// inserted zero is computed. A phase with fewer taps than another multiplies by weights of 0 instead.
//
// Values that are not finite: an Inf times a zero of the halo or of the weights is NaN, where the definition
// has no such product. So a thread with a sum that is not finite computes all of its outputs again by the
// definition.

#include <voxgrad/cuda/conv3d/call.h>
#include <voxgrad/cuda/conv3d/common/recent.h>
#include <voxgrad/cuda/conv3d/few_channels/launch.h>
#include <voxgrad/cuda/runtime/launch.h>
#include <voxgrad/cuda/conv3d/few_channels/window.cuh>

namespace vox::cuda::conv::few_channels {

// ---- Helpers ----------------------------------------------------------------------------------------------

/// The block's part of the problem.
struct Job {
  Cell tile;  // its first cell
  int first_out, group, image;
};

__device__ __forceinline__ Job job_at(const Plan& p, int number) {
  const auto [image, group, out_block, d, h, w] = digits(number, p.by_job);
  return {{d * p.d.tile, h * p.h.tile, w * p.w.tile}, out_block * p.outs, group, image};
}

/// What a thread owns: cells j, j + 1, ... along h of one phase.
struct Item {
  Cell out;                    // the first output; its neighbours are h.out_step apart
  int column;                  // where its first number lies in a channel of the window
  int slot_d, slot_h, slot_w;  // of the weights
};

__device__ __forceinline__ Item item_at(const Plan& p, int number, Cell tile) {
  const auto [phase_d, phase_h, d, run, w, phase_w] = digits(number, p.by_item);
  const int in_d = d * p.d.in_step + p.d.base[phase_d], in_h = p.run * run * p.h.in_step + p.h.base[phase_h];
  return {{(tile.d + d) * p.d.out_step + phase_d, (tile.h + p.run * run) * p.h.out_step + phase_h,
           (tile.w + w) * p.w.out_step + phase_w},
          in_d * p.window.plane() + (w + p.w.base[phase_w]) * p.window.pitch + in_h,
          phase_d * p.d.taps,
          phase_h * p.h.taps,
          phase_w * p.w.taps};
}

/// A thread's weights of one tap, which one instruction loads.
template <int outs>
struct alignas(outs < 4 ? 4 * outs : 16) TapWeights {
  float of[outs];
};

/// The weights of some input channels for a thread's outputs, as [channel][slot of d][of w][of h][out].
template <class T, int outs>
__device__ __forceinline__ void load_weights(const T* weight, const Plan& p, int group, int first_in,
                                             int channels, int first_out, float* to) {
  const int count = channels * p.d.slots() * p.w.slots() * p.h.slots() * outs;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += most_threads) {
    const auto [channel, slot_d, slot_w, slot_h] = digits(i / outs, p.by_slot);
    const int d = p.d.tap[slot_d], h = p.h.tap[slot_h], w = p.w.tap[slot_w];
    const int in = first_in + channel, out = first_out + i % outs;
    const int64_t pair = p.transposed ? (int64_t{group} * p.in_per_group + in) * p.out_per_group + out
                                      : (int64_t{group} * p.out_per_group + out) * p.in_per_group + in;
    const bool exists = d >= 0 && h >= 0 && w >= 0 && out < p.out_per_group;
    to[i] = exists ? static_cast<float>(weight[pair * p.taps + (d * p.h.kernel + h) * p.w.kernel + w]) : 0.0f;
  }
}

/// Adds to sum what the taps along h read of one column. `taps` 0: any number of taps, stride and dilation.
template <int taps, int step, int run, int outs>
__device__ __forceinline__ void multiply_column(const float* column, const float* weights, const Axis& h,
                                                float (&sum)[run][outs]) {
  const auto multiply = [&](int tap, auto value) {
    const auto weight = reinterpret_cast<const TapWeights<outs>*>(weights)[tap];
#pragma unroll
    for (int o = 0; o < outs; ++o)
#pragma unroll
      for (int r = 0; r < run; ++r) sum[r][o] = fmaf(value(r), weight.of[o], sum[r][o]);
  };
  if constexpr (taps > 0) {
    Column<run, taps, step> x;
    x.load(column);
#pragma unroll
    for (int tap = 0; tap < taps; ++tap) multiply(tap, [&](int r) { return x.at(r, tap); });
  } else {
#pragma unroll 1
    for (int tap = 0; tap < h.taps; ++tap) {
      float x[run];
#pragma unroll
      for (int r = 0; r < run; ++r) x[r] = column[r * h.in_step + tap * h.tap_step];
      multiply(tap, [&](int r) { return x[r]; });
    }
  }
}

/// One output, by the definition.
template <class T>
__device__ __noinline__ float by_definition(const T* in, const T* weight, float sum, const Plan& p, int group,
                                            int channel, Cell o) {
  const auto touched = [&](const Axis& a, int out, int tap) {  // the input cell, or one that is outside
    if (!p.transposed) return out * a.stride - a.padding + tap * a.dilation;
    const int distance = out + a.padding - tap * a.dilation;
    return distance % a.stride == 0 ? distance / a.stride : -1;
  };
  for (int kd = 0; kd < p.d.kernel; ++kd) {
    const int d = touched(p.d, o.d, kd);
    if (!within(d, p.d.in_cells)) continue;
    for (int kh = 0; kh < p.h.kernel; ++kh) {
      const int h = touched(p.h, o.h, kh);
      if (!within(h, p.h.in_cells)) continue;
      for (int kw = 0; kw < p.w.kernel; ++kw) {
        const int w = touched(p.w, o.w, kw);
        if (!within(w, p.w.in_cells)) continue;
        for (int c = 0; c < p.in_per_group; ++c) {
          const int64_t pair = p.transposed
                                   ? (int64_t{group} * p.in_per_group + c) * p.out_per_group + channel
                                   : (int64_t{group} * p.out_per_group + channel) * p.in_per_group + c;
          const T x = in[c * p.in_cells + (int64_t{d} * p.h.in_cells + h) * p.w.in_cells + w];
          const T y = weight[pair * p.taps + (kd * p.h.kernel + kh) * p.w.kernel + kw];
          sum = fmaf(static_cast<float>(x), static_cast<float>(y), sum);
        }
      }
    }
  }
  return sum;
}

// ---- The kernel -------------------------------------------------------------------------------------------

template <class T, int taps, int step, int run, int outs>
__global__ void __launch_bounds__(most_threads, outs == 8 ? 2 : 3)
    product_kernel(const T* __restrict__ in, const T* __restrict__ weight, const T* __restrict__ bias,
                   T* __restrict__ out, const __grid_constant__ Plan p) {
  extern __shared__ __align__(16) float memory[];
  float* const weights = memory;
  float* const totals = memory + p.weight_words + threadIdx.x;
  float* const window = memory + p.weight_words + p.total_words;
  const int channel = p.window.channel(), step_d = p.d.tap_step * p.window.plane();
  const int slots_w = p.w.slots() * p.h.slots() * outs, slots_d = p.d.slots() * slots_w;

  for (int job = static_cast<int>(blockIdx.x); job < p.jobs; job += static_cast<int>(gridDim.x)) {
    const auto [tile, first_out, group, image] = job_at(p, job);
    const T* const x = in + (int64_t{image} * p.groups + group) * p.in_per_group * p.in_cells;
    const int64_t first_channel = int64_t{group} * p.out_per_group + first_out;

    for (int first = 0; first < p.items; first += most_threads) {
      const int number = first + static_cast<int>(threadIdx.x);
      const Item item = item_at(p, min(number, p.items - 1), tile);
      float sum[run][outs];
#pragma unroll
      for (int o = 0; o < outs; ++o) {
        const bool exists = bias && first_out + o < p.out_per_group;
        const float start = exists ? static_cast<float>(bias[first_channel + o]) : 0.0f;
#pragma unroll
        for (int r = 0; r < run; ++r) sum[r][o] = start;
      }
      for (int c = 0; c < p.in_per_group; c += p.channels) {
        const int channels = min(p.channels, p.in_per_group - c);
        if (first == 0 || p.total_words > 0) {
          __syncthreads();  // all threads are done with the previous contents
          load_weights<T, outs>(weight, p, group, c, channels, first_out, weights);
          load_window(x + c * p.in_cells, channels, p.in_cells,
                      Cell{p.d.in_cells, p.h.in_cells, p.w.in_cells}, p.window,
                      Cell{tile.d * p.d.in_step + p.d.low, tile.h * p.h.in_step + p.h.low,
                           tile.w * p.w.in_step + p.w.low},
                      window);
          __syncthreads();
        }
        if (number >= p.items) continue;
        const float* of_channel = window + item.column;
        const float* weights_of_channel =
            weights + item.slot_d * slots_w + (item.slot_w * p.h.slots() + item.slot_h) * outs;
#pragma unroll 1
        for (int i = 0; i < channels; ++i, of_channel += channel, weights_of_channel += slots_d) {
          const float *plane = of_channel, *w = weights_of_channel;
#pragma unroll 1
          for (int kd = 0; kd < p.d.taps; ++kd, plane += step_d, w += slots_w) {
#pragma unroll 1
            for (int kw = 0; kw < p.w.taps; ++kw)
              multiply_column<taps, step, run, outs>(plane + p.column_shift[kw], w + kw * p.h.slots() * outs,
                                                     p.h, sum);
          }
        }
        if (p.total_words == 0) continue;
        // The sums of each chunk of channels are added as a whole, which keeps the error of long sums small.
        const bool last = c + channels == p.in_per_group;
#pragma unroll
        for (int o = 0; o < outs; ++o)
#pragma unroll
          for (int r = 0; r < run; ++r) {
            float& total = totals[(o * run + r) * most_threads];
            const float value = c > 0 ? total + sum[r][o] : sum[r][o];
            total = value;
            sum[r][o] = last ? value : 0.0f;
          }
      }
      if (number >= p.items || item.out.d >= p.d.out_cells || item.out.w >= p.w.out_cells) continue;

      T* const to = out + (int64_t{image} * p.groups * p.out_per_group + first_channel) * p.out_cells +
                    (int64_t{item.out.d} * p.h.out_cells + item.out.h) * p.w.out_cells + item.out.w;
      const int outs_here = min(outs, p.out_per_group - first_out);
      const int cells_here = min(run, (p.h.out_cells - item.out.h + p.h.out_step - 1) / p.h.out_step);
      const int64_t row = int64_t{p.h.out_step} * p.w.out_cells;
      float finite = 0;  // or NaN
#pragma unroll
      for (int o = 0; o < outs; ++o) {
        if (o >= outs_here) break;
#pragma unroll
        for (int r = 0; r < run; ++r) {
          finite = fmaf(sum[r][o], 0.0f, finite);
          if (r < cells_here) to[o * p.out_cells + r * row] = static_cast<T>(sum[r][o]);
        }
      }
      if (finite == 0) continue;
#pragma unroll 1
      for (int o = 0; o < outs_here; ++o)
#pragma unroll 1
        for (int r = 0; r < cells_here; ++r) {
          const float start = bias ? static_cast<float>(bias[first_channel + o]) : 0.0f;
          const Cell at{item.out.d, item.out.h + r * p.h.out_step, item.out.w};
          to[o * p.out_cells + r * row] =
              static_cast<T>(by_definition(x, weight, start, p, group, first_out + o, at));
        }
    }
  }
}

// ---- Launchers --------------------------------------------------------------------------------------------

template <class T>
void run(const Conv3dCall& call) {
  const auto& [transposed, input, weight, bias, output, g, only_if, failed] = call;
  const Plan& p = *recall<make_plan>(g, transposed);
  const Launch launch(call.op(), output, {&input, &weight, &bias});
  visit_column(p.h.taps, p.h.in_step, p.h.tap_step, [&](auto taps, auto step) {
    visit_results(p.run, p.outs, [&](auto run, auto outs) {
      constexpr auto* kernel = product_kernel<T, taps, step, run, outs>;
      launch.allow_shared_memory<kernel>(p.shared_bytes);
      kernel<<<grid_for(p.jobs, 1), most_threads, static_cast<size_t>(p.shared_bytes), launch.stream()>>>(
          vox::detail::ptr<T>(input), vox::detail::ptr<T>(weight), vox::detail::ptr_or_null<T>(bias),
          vox::detail::mutable_ptr<T>(output), p);
    });
  });
  launch.check();
}

}  // namespace vox::cuda::conv::few_channels
