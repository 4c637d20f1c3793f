#include <voxgrad/ops/kernels.h>
#include <voxgrad/ops/layout.h>
#include <voxgrad/cuda/map.cuh>

// Ops that move elements: copy, which also converts, and fill.

namespace vox::cuda {
namespace {

struct Same {
  template <class T>
  __device__ T operator()(T x) const {
    return x;
  }
};

template <class To>
struct Convert {
  template <class From>
  __device__ To operator()(From x) const {
    return detail::convert<To>(x);
  }
};

template <class T>
struct Constant {
  T value;
  __device__ T operator()() const { return value; }
};

}  // namespace

void copy(const Tensor& source, const Tensor& target) {
  if (source.dtype() != target.dtype()) {
    visit_dtype(source.dtype(), [&]<class From>(From) {
      visit_dtype(target.dtype(),
                  [&]<class To>(To) { map("copy", Convert<To>{}, Out<To>{target}, In<From>{source}); });
    });
  } else if (source.numel() > 0 && detail::strided_layout(target, source).is_dense()) {
    const Launch launch("copy", target, {&source});
    const auto bytes = static_cast<size_t>(target.numel() * size_of(target.dtype()));
    launch.check(cudaMemcpyAsync(target.impl()->data(), source.impl()->data(), bytes,
                                 cudaMemcpyDeviceToDevice, launch.stream()));
  } else {
    visit_bits(source.dtype(), [&]<class T>(T) { map("copy", Same{}, Out<T>{target}, In<T>{source}); });
  }
}

void fill(const Tensor& target, Scalar value) {
  visit_dtype(target.dtype(),
              [&]<class T>(T) { map("fill", Constant<T>{detail::element<T>(value)}, Out<T>{target}); });
}

}  // namespace vox::cuda
