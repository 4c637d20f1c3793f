#include <voxgrad/ops/kernels.h>
#include <voxgrad/ops/layout.h>
#include <voxgrad/cuda/elementwise.cuh>

// Ops that move elements: copy, which also converts, and fill. One thread per element.

namespace vox::cuda {
namespace {

template <class From, class To>
struct Copy {
  detail::StridedLayout<2> layout;
  const From* source;
  To* target;
  __device__ void operator()(int64_t i) const {
    const auto at = layout.offsets(i);
    target[at[0]] = detail::convert<To>(source[at[1]]);
  }
};

/// Casts of dense memory between f32, bf16 and f16, which are frequent in 16-bit training. A thread casts 8
/// elements, with loads and stores of 16 bytes.
template <class T>
struct alignas(16) Eight {
  T lane[8];
};
template <class From, class To>
struct DenseCast {
  int64_t numel;
  const From* source;
  To* target;
  __device__ void operator()(int64_t p) const {
    if ((p + 1) * 8 <= numel) {
      const Eight<From> in = reinterpret_cast<const Eight<From>*>(source)[p];
      Eight<To> out;
#pragma unroll
      for (int i = 0; i < 8; ++i) out.lane[i] = detail::convert<To>(in.lane[i]);
      reinterpret_cast<Eight<To>*>(target)[p] = out;
    } else {
      for (int64_t i = p * 8; i < numel; ++i) target[i] = detail::convert<To>(source[i]);
    }
  }
};
template <class T>
inline constexpr bool is_cast_densely = std::is_same_v<T, float> || is_16_bit_v<T>;

template <class T>
struct Fill {
  detail::StridedLayout<1> layout;
  T value;
  T* target;
  __device__ void operator()(int64_t i) const { target[layout.offsets(i)[0]] = value; }
};

}  // namespace

void copy(const Tensor& source, const Tensor& target) {
  const Launch launch("copy", target, {&source});
  const auto layout = detail::strided_layout(target, source);
  if (source.dtype() == target.dtype() && layout.is_dense()) {
    if (layout.numel == 0) return;
    const auto bytes = static_cast<size_t>(layout.numel * size_of(target.dtype()));
    launch.check(cudaMemcpyAsync(target.impl()->data(), source.impl()->data(), bytes,
                                 cudaMemcpyDeviceToDevice, launch.stream()));
    return;
  }
  visit_dtype(source.dtype(), [&]<class From>(From) {
    visit_dtype(target.dtype(), [&]<class To>(To) {
      const From* from = detail::ptr<From>(source);
      To* to = detail::mutable_ptr<To>(target);
      if constexpr (is_cast_densely<From> && is_cast_densely<To> && !std::is_same_v<From, To>) {
        if (layout.is_dense() && is_packet_aligned(from) && is_packet_aligned(to))
          return for_each_index(launch, layout.numel / 8 + (layout.numel % 8 != 0),
                                DenseCast<From, To>{layout.numel, from, to});
      }
      for_each_index(launch, layout.numel, Copy<From, To>{layout, from, to});
    });
  });
}

void fill(const Tensor& target, Scalar value) {
  const Launch launch("fill", target);
  const auto layout = detail::strided_layout(target);
  visit_dtype(target.dtype(), [&]<class T>(T) {
    for_each_index(launch, layout.numel,
                   Fill<T>{layout, detail::element<T>(value), detail::mutable_ptr<T>(target)});
  });
}

}  // namespace vox::cuda
