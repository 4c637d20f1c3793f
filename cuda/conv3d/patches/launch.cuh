#pragma once

// The launches of the kernels for patches. Each kind of numbers (kernel.cuh) has its own .cu file.

#include <voxgrad/core/tensor.h>
#include <voxgrad/cuda/conv3d/call.h>
#include <voxgrad/cuda/conv3d/common/hopper.h>
#include <voxgrad/cuda/conv3d/common/recent.h>
#include <voxgrad/cuda/conv3d/patches/plan.h>
#include <voxgrad/cuda/runtime/launch.h>
#include <voxgrad/cuda/conv3d/patches/kernel.cuh>
#include <voxgrad/cuda/conv3d/patches/weight_grad.cuh>
#include <voxgrad/cuda/packet.cuh>

#include <algorithm>
#include <type_traits>

namespace vox::cuda::conv::patches {

// ---- Views that begin anywhere ----------------------------------------------------------------------------

/// An operand at a multiple of 16 bytes: where it is, or a copy.
template <class T>
class Aligned {
 public:
  Aligned(const Launch& launch, const Tensor& x)
      : copy_(launch, is_packet_aligned(vox::detail::ptr<T>(x)) ? 0 : x.numel() * int64_t{sizeof(T)}),
        data_(vox::detail::ptr<T>(x)) {
    if (is_packet_aligned(data_)) return;
    launch.check(cudaMemcpyAsync(copy_.as<T>(), data_, static_cast<size_t>(x.numel()) * sizeof(T),
                                 cudaMemcpyDeviceToDevice, launch.stream()));
    data_ = copy_.as<T>();
  }
  const T* data() const { return data_; }

 private:
  Workspace copy_;
  const T* data_;
};

// ---- conv3d and conv_transpose3d --------------------------------------------------------------------------

/// Calls f with the kernel's parameters as std::integral_constants.
template <int parts, class F>
void visit_kernel(const Planned& planned, F f) {
  const auto with = [&]<int in_w, int out_w, int m_step, int ahead, bool resident>() {
    f(std::integral_constant<int, in_w>{}, std::integral_constant<int, out_w>{},
      std::integral_constant<int, m_step>{}, std::integral_constant<int, ahead>{},
      std::bool_constant<resident>{});
  };
  const auto& [p, m_step, ahead, resident, warps, shared_bytes] = planned;
  constexpr int two = parts == 1 ? 2 : 1, four = 2 * two;  // steps ahead
  if constexpr (parts == 1) {
    if (p.grids.kernel_w == 1 && resident) return with.template operator()<1, 1, 2, 2, true>();
    if (ahead == 8 && p.transposed) return with.template operator()<1, 2, 2, 8, true>();
    if (ahead == 8) return with.template operator()<2, 1, 4, 8, false>();
  }
  if (p.grids.kernel_w == 1) {
    if (m_step == 1) return with.template operator()<1, 1, 1, two, false>();
    return with.template operator()<1, 1, 2, two, false>();
  }
  if (p.transposed) {
    if (resident) return with.template operator()<1, 2, 2, 4, true>();
    return with.template operator()<1, 2, 4, four, false>();
  }
  if (m_step == 1) return with.template operator()<2, 1, 1, four, false>();
  if (m_step == 2) return with.template operator()<2, 1, 2, four, false>();
  with.template operator()<2, 1, 4, four, false>();
}

/// How many blocks of `kernel` a multiprocessor of the current device runs at once. `device` is for recall().
template <auto* kernel>
int resident_blocks(const char* op, int /*device*/, int threads, int shared_bytes) {
  int blocks = 0;
  check_cuda(op, cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads,
                                                               static_cast<size_t>(shared_bytes)));
  return blocks;
}

/// Where a kernel says that it failed: if it splits numbers, it can.
template <class N>
int64_t* flag(const Tensor& failed) {
  return N::parts > 1 ? vox::detail::mutable_ptr<int64_t>(failed) : nullptr;
}

template <class N>
void run(const Conv3dCall& call) {
  using T = typename N::Storage;
  const auto& [transposed, input, weight, bias, output, g, only_if, failed] = call;
  const Planned planned = *recall<make_plan>(g, transposed, N::parts, this_machine());
  const Plan& p = planned.plan;
  const Launch launch(call.op(), output, {&input, &weight, &bias, &failed});
  const Aligned<T> from(launch, input), weights(launch, weight);
  T* const result = vox::detail::mutable_ptr<T>(output);
  const int64_t bytes = output.numel() * int64_t{sizeof(T)};
  const Workspace aligned_result(launch, is_packet_aligned(result) ? 0 : bytes);
  T* const to = is_packet_aligned(result) ? result : aligned_result.as<T>();
  visit_kernel<N::parts>(planned, [&](auto in_w, auto out_w, auto m_step, auto ahead, auto resident) {
    constexpr auto* kernel = product_kernel<N, in_w, out_w, m_step, ahead, resident>;
    launch.allow_shared_memory<kernel>(planned.shared_bytes);
    const int threads = 32 * planned.warps;
    const int at_once =
        recall<resident_blocks<kernel>>(call.op(), output.device().index, threads, planned.shared_bytes);
    const int most = std::max(1, multiprocessors(launch) * at_once / p.m_blocks);
    const int workers = std::min(most, ceil_div(p.tiles, planned.warps / p.parts));
    kernel<<<static_cast<unsigned>(workers * p.m_blocks), static_cast<unsigned>(threads),
             static_cast<size_t>(planned.shared_bytes), launch.stream()>>>(
        from.data(), weights.data(), vox::detail::ptr_or_null<T>(bias), to, flag<N>(failed), p);
  });
  launch.check();
  if (to != result)
    launch.check(
        cudaMemcpyAsync(result, to, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, launch.stream()));
}

// ---- The weight gradient ----------------------------------------------------------------------------------

template <class N, int kernel_w, int n_tiles, class T>
void launch_splits(const Launch& launch, const T* big, const T* small, float* partials,
                   const PlannedWeightGrad& planned) {
  constexpr auto* kernel = split_kernel<N, kernel_w, n_tiles>;
  const WeightGradPlan& p = planned.plan;
  launch.allow_shared_memory<kernel>(planned.shared_bytes);
  kernel<<<static_cast<unsigned>(p.small_blocks * p.big_blocks * p.splits), wg_threads,
           static_cast<size_t>(planned.shared_bytes), launch.stream()>>>(big, small, partials, p);
}

template <class N>
void run_weight_grad(const WeightGradCall& call) {
  using T = typename N::Storage;
  const auto& [big, small, dweight, g, only_if, failed] = call;
  const PlannedWeightGrad planned = *recall<make_weight_grad_plan>(g, N::parts);
  const WeightGradPlan& p = planned.plan;
  const Launch launch("conv3d_weight_grad", dweight, {&big, &small, &failed});
  const Aligned<T> from_big(launch, big), from_small(launch, small);
  const Workspace partials(launch, p.splits * p.split_floats * 4);
  const auto one = [&]<int n_tiles>() {
    if (planned.n_tiles != n_tiles) return;
    const auto start =
        p.grids.kernel_w == 2 ? launch_splits<N, 2, n_tiles, T> : launch_splits<N, 1, n_tiles, T>;
    start(launch, from_big.data(), from_small.data(), partials.as<float>(), planned);
  };
  one.template operator()<1>();
  one.template operator()<2>();
  one.template operator()<4>();
  one.template operator()<8>();
  sum_splits(launch, partials.as<float>(), p.split_floats, p.splits,
             StoreSum<T>{p, vox::detail::mutable_ptr<T>(dweight), flag<N>(failed)});
  launch.check();
}

}  // namespace vox::cuda::conv::patches
