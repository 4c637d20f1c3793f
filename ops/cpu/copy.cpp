#include <voxgrad/ops/kernels.h>

#include <algorithm>

#include <voxgrad/core/parallel.h>
#include <voxgrad/ops/cpu/convert_run.h>
#include <voxgrad/ops/cpu/isa.h>
#include <voxgrad/ops/cpu/simd/memory.h>
#include <voxgrad/ops/cpu/walk.h>
#include <voxgrad/ops/layout.h>

// Ops that move elements: copy, which converts (see Note [Walks]), fill and pad.

namespace vox::cpu {
namespace {

constexpr ByIsa kernels = VOX_BY_ISA(copy_kernels);

constexpr int64_t fill_grain = 65536;  // elements worth a task: a few microseconds

/// copy() within one dtype.
void copy_same(const Tensor& source, const Tensor& target) {
  const auto kernel = kernels.here().copy;
  const auto copy_run = [=, dtype = target.dtype()](const Run& r) {
    if (r.step[1] == 1) return kernel(r.at[1], r.at[0], r.n * size_of(dtype), r.stream);
    visit_bits(dtype, [&]<class T>(T) { std::fill_n(r.pointer<T>(0), r.n, *r.pointer<T>(1)); });
  };
  for_runs(copy_run, target, source);
}

}  // namespace

void copy(const Tensor& source, const Tensor& target) {
  if (source.dtype() == target.dtype()) return copy_same(source, target);
  visit_storage(source.dtype(), [&]<class From>(From) {
    visit_storage(target.dtype(), [&]<class To>(To) {
      for_runs(
          [](const Run& r) {
            const From* from = r.pointer<From>(1);
            To* to = r.pointer<To>(0);
            if (r.step[1] == 0)
              std::fill_n(to, r.n, detail::convert<To>(*from));
            else
              convert_run(from, to, r.n);
          },
          target, source);
    });
  });
}

void fill(const Tensor& target, Scalar value) {
  const auto layout = detail::strided_layout(target);
  visit_storage(target.dtype(), [&]<class T>(T) {
    const T element = detail::element<T>(value);
    T* const data = detail::mutable_ptr<T>(target);
    parallel_for(layout.numel, fill_grain, [&](int64_t begin, int64_t end) {
      layout.for_runs(0, begin, end - begin, [&](int64_t offset, int64_t length, int64_t stride) {
        if (stride == 1)
          std::fill_n(data + offset, length, element);
        else
          for (int64_t i = 0; i < length; ++i) data[offset + i * stride] = element;
      });
    });
  });
}

void pad(const Tensor& x, const Shape& before, const Shape& step, Scalar value, const Tensor& y) {
  fill(y, value);
  copy(x, detail::inside(y, before, step, x.shape()));
}

}  // namespace vox::cpu
