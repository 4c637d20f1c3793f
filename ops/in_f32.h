#pragma once

#include <utility>

#include <voxgrad/core/tensor.h>
#include <voxgrad/ops/kernels.h>

// Lets a kernel for f32 and f64 serve bf16 and f16 too: it runs on f32 copies of the 16-bit tensors, and each
// output is rounded once, at the end. The table of kernels says so:
//
//     constexpr ByDevice kernel{"matmul", in_f32<&cpu::matmul>, VOX_CUDA(&cuda::matmul)};

namespace vox::detail {

/// x in the dtype that ops on it compute in, off the tape: x itself unless it holds 16-bit numbers. Elements
/// repeated with stride 0 are converted once. An undefined tensor stays undefined.
inline Tensor widened(const Tensor& x) {
  if (!x.defined() || !is_16_bit(x.dtype())) return x;
  Shape distinct = x.shape();
  for (int64_t i = 0; i < distinct.rank(); ++i) {
    if (x.strides()[i] == 0 && distinct[i] > 1) distinct[i] = 1;
  }
  return alias(x, x.impl()->offset, distinct, x.strides()).to(f32).expand(x.shape());
}

/// Converts one argument for the kernel: by default it is passed on.
template <class P>
struct InF32 {
  P argument;
  P get() { return argument; }
  void finish() {}
};
/// An input becomes f32.
template <>
struct InF32<const Tensor&> {
  const Tensor wide;
  explicit InF32(const Tensor& x) : wide(widened(x)) {}
  const Tensor& get() { return wide; }
  void finish() {}
};
/// An output becomes f32 memory, which is rounded into the argument at the end.
template <>
struct InF32<Tensor&> {
  Tensor &output, wide;
  explicit InF32(Tensor& y)
      : output(y), wide(y.defined() && is_16_bit(y.dtype()) ? empty(y.shape(), {f32, y.device()}) : y) {}
  Tensor& get() { return wide; }
  void finish() {
    if (wide.impl() != output.impl()) copy_kernel.on(output.device())(wide, output);
  }
};

template <auto* kernel>
struct KernelInF32;
template <class... P, void (*kernel)(P...)>
struct KernelInF32<kernel> {
  static void run(P... arguments) {
    [](InF32<P>... stand_ins) {
      kernel(stand_ins.get()...);
      (stand_ins.finish(), ...);
    }(InF32<P>{arguments}...);
  }
};

}  // namespace vox::detail

namespace vox {

/// `kernel`, whose outputs are dense and of type `Tensor&`, extended to bf16 and f16.
template <auto* kernel>
inline constexpr auto* in_f32 = &detail::KernelInF32<kernel>::run;

}  // namespace vox
