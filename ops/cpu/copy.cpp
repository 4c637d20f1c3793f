#include <voxgrad/ops/elementwise_kernels.h>

#include <cstring>

#include <voxgrad/ops/cpu/blocks.h>
#include <voxgrad/ops/cpu/isa.h>
#include <voxgrad/ops/cpu/simd/copy.h>
#include <voxgrad/ops/cpu/walk.h>

// Ops that move elements: copy (which converts, see Note [Blocks]) and fill.

namespace vox::cpu {
namespace {

constexpr ByIsa kernels{&simd::baseline::copy_kernels, VOX_X86(&simd::v3::copy_kernels),
                        VOX_X86(&simd::v4::copy_kernels)};

/// n copies of one element.
void fill_with(const char* element, char* to, int64_t n, int64_t size) {
  const auto fill = [&]<class T>(T value) {
    std::memcpy(&value, element, sizeof value);
    std::fill_n(reinterpret_cast<T*>(to), n, value);
  };
  if (size == 1) return fill(uint8_t{});
  if (size == 2) return fill(uint16_t{});
  if (size == 4) return fill(uint32_t{});
  fill(uint64_t{});
}

}  // namespace

void copy(const Tensor& source, const Tensor& target) {
  if (source.dtype() == target.dtype()) {
    const int64_t size = size_of(target.dtype());
    const auto kernel = kernels.here().copy;
    return for_runs(
        [=](const Run& r) {
          if (r.step[1] == 1)
            kernel(r.at[1], r.at[0], r.n * size, r.stream);
          else
            fill_with(r.at[1], r.at[0], r.n, size);
        },
        target, source);
  }
  visit_opmath(source.dtype(), [&]<class From>(From) {
    visit_dtype(target.dtype(), [&]<class To>(To) {
      map_blocks<To, From>(
          target,
          [](const Block<From>& x, Block<To>& y) {
            for (int64_t i = 0; i < block_size; ++i) y[i] = detail::convert<To>(x[i]);
          },
          source);
    });
  });
}

void fill(const Tensor& target, Scalar value) {
  const auto layout = detail::strided_layout(target);
  visit_dtype(target.dtype(), [&]<class T>(T) {
    const T element = detail::element<T>(value);
    T* const data = detail::mutable_ptr<T>(target);
    parallel_for(layout.numel, block_grain, [&](int64_t begin, int64_t end) {
      layout.for_runs(0, begin, end - begin, [&](int64_t offset, int64_t length, int64_t stride) {
        if (stride == 1)
          std::fill_n(data + offset, length, element);
        else
          for (int64_t i = 0; i < length; ++i) data[offset + i * stride] = element;
      });
    });
  });
}

}  // namespace vox::cpu
