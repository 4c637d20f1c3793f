#include <voxgrad/ops/elementwise_kernels.h>

#include <cstring>

#include <voxgrad/ops/cpu/blocks.h>

// Ops that choose and move elements: compare, where, copy (which converts), fill. See Note [Blocks].

namespace vox::cpu {
namespace {

template <class T, class F>
void compare_lanes(const Tensor& a, const Tensor& b, const Tensor& y, F f) {
  map_blocks<bool, T>(
      y,
      [f](const Block<T>& left, const Block<T>& right, Block<bool>& out) {
        for (int64_t i = 0; i < block_size; ++i) out[i] = f(left[i], right[i]);
      },
      a, b);
}

}  // namespace

void compare(Comparison op, const Tensor& a, const Tensor& b, const Tensor& y) {
  visit_opmath(a.dtype(), [&]<class T>(T) {
    switch (op) {
      case Comparison::eq:
        return compare_lanes<T>(a, b, y, [](T l, T r) { return l == r; });
      case Comparison::ne:
        return compare_lanes<T>(a, b, y, [](T l, T r) { return l != r; });
      case Comparison::lt:
        return compare_lanes<T>(a, b, y, [](T l, T r) { return l < r; });
      case Comparison::le:
        return compare_lanes<T>(a, b, y, [](T l, T r) { return l <= r; });
      case Comparison::gt:
        return compare_lanes<T>(a, b, y, [](T l, T r) { return l > r; });
      case Comparison::ge:
        return compare_lanes<T>(a, b, y, [](T l, T r) { return l >= r; });
    }
  });
}

void where(const Tensor& condition, const Tensor& a, const Tensor& b, const Tensor& y) {
  const auto layout = detail::strided_layout(y, condition, a, b);
  visit_bits(y.dtype(), [&]<class T>(T) {
    parallel_for(layout.numel, block_grain, [&](int64_t begin, int64_t end) {
      Block<bool> chosen = Block<bool>::Zero();
      Block<T> left = Block<T>::Zero(), right = Block<T>::Zero(), out;
      for (; begin < end; begin += block_size) {
        const int64_t count = std::min(block_size, end - begin);
        gather(layout, 1, detail::ptr<bool>(condition), begin, count, chosen);
        gather(layout, 2, detail::ptr<T>(a), begin, count, left);
        gather(layout, 3, detail::ptr<T>(b), begin, count, right);
        for (int64_t i = 0; i < block_size; ++i) out[i] = chosen[i] ? left[i] : right[i];
        scatter(layout, 0, out, begin, count, detail::mutable_ptr<T>(y));
      }
    });
  });
}

void copy(const Tensor& source, const Tensor& target) {
  const auto layout = detail::strided_layout(target, source);
  if (source.dtype() == target.dtype() && layout.is_dense()) {
    const int64_t size = size_of(target.dtype());
    parallel_for(layout.numel, block_grain, [&](int64_t begin, int64_t end) {
      std::memcpy(static_cast<char*>(target.impl()->data()) + begin * size,
                  static_cast<const char*>(source.impl()->data()) + begin * size,
                  static_cast<size_t>((end - begin) * size));
    });
    return;
  }
  if (source.dtype() == target.dtype()) {
    return visit_bits(target.dtype(), [&]<class T>(T) {
      map_blocks<T, T>(
          target, [](const Block<T>& x, Block<T>& y) { y = x; }, source);
    });
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
