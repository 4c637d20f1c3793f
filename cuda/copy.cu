#include <bit>
#include <climits>

#include <voxgrad/ops/kernels.h>
#include <voxgrad/ops/layout.h>
#include <voxgrad/cuda/map.cuh>

// Ops that move elements: copy, which also converts, fill and pad.
//
// A copy is a map, with two exceptions. Conversions from or to an integer have a kernel for dense tensors
// only, and those between integers none: ConvertRows serves them all. And if the elements that follow each
// other in the target lie far apart in the source, and those that follow each other in the source lie far
// apart in the target, a map would touch a sector of memory (32 bytes) for every element. Then thread blocks
// transpose tiles through shared memory.

namespace vox::cuda {
namespace {

struct Same {
  template <class T>
  __device__ T operator()(T x) const {
    return x;
  }
};

template <class To, class From>
struct Convert {
  static constexpr bool only_dense = !is_floating_v<To> || !is_floating_v<From>;
  __device__ To operator()(opmath_t<From> x) const { return detail::convert<To>(x); }
};

/// Converts between any dtypes in any layout, row by row, as MapRows does. A double or an int64_t holds every
/// number on the way.
struct ConvertRows {
  static constexpr int most = 8;
  RowShares<2, most> rows;
  const void* source;
  void* target;
  DType from, to;

  __device__ void operator()(int64_t thread) const {
    const auto at = rows.threads.offsets(thread);
    const int count = rows.count(at[2]);
    if (is_floating(from))
      convert<double, float, double, bfloat16, float16>(at[0], at[1], count);
    else
      convert<int64_t, int64_t, uint8_t, bool, int16_t, uint16_t, int32_t>(at[0], at[1], count);
  }

 private:
  /// Calls f(T{}) with the T of this dtype.
  template <class... T, class F>
  static __device__ void visit(DType dtype, F f) {
    ((dtype == dtype_of<T>() && (f(T{}), true)) || ...);
  }
  /// The elements of one thread. Wide holds all numbers of the types From.
  template <class Wide, class... From>
  __device__ void convert(int64_t target_at, int64_t source_at, int count) const {
    Wide held[most];
    visit<From...>(from, [&]<class T>(T) {
      const T* x = static_cast<const T*>(source) + source_at;
#pragma unroll
      for (int u = 0; u < most; ++u, x += rows.steps[1])
        if (u < count) held[u] = static_cast<Wide>(static_cast<opmath_t<T>>(*x));
    });
    visit<float, double, bfloat16, float16, int64_t, uint8_t, bool, int16_t, uint16_t, int32_t>(
        to, [&]<class T>(T) {
          T* y = static_cast<T*>(target) + target_at;
#pragma unroll
          for (int u = 0; u < most; ++u, y += rows.steps[0])
            if (u < count) *y = detail::convert<T>(held[u]);
        });
  }
};

template <class T>
struct Constant {
  T value;
  __device__ T operator()() const { return value; }
};

// ---- Copies that transpose --------------------------------------------------------------------------------

/// How tiles cover a copy. Operand 0 is the target, whose elements follow each other along dimension a;
/// operand 1 is the source, whose elements follow each other along dimension b. A tile has 2^log_a by 2^log_b
/// elements; all other dimensions are batch.
struct Tiles {
  static constexpr int threads = 128, log_numel = 12, numel = 1 << log_numel, longest = 128;
  detail::StridedLayout<4> layout;  // a tile each; operands 2 and 3: its first index along a and along b
  int64_t size_a, size_b;
  int64_t target_stride, source_stride;  // of the target along b, of the source along a
  int log_a = log_numel / 2, log_b = log_numel / 2;

  Tiles(const detail::StridedLayout<2>& copy, int a, int b)
      : size_a(copy.sizes[a]),
        size_b(copy.sizes[b]),
        target_stride(copy.strides[0][b]),
        source_stride(copy.strides[1][a]) {
    // Square, but 32 by 128 if one direction is short.
    if (size_a <= 32)
      --log_a, ++log_b;
    else if (size_b <= 32)
      ++log_a, --log_b;
    const auto tiles_along = [](int64_t size, int log) { return (size - 1 >> log) + 1; };
    layout = copy.coarser({a, b}, {tiles_along(size_a, log_a), tiles_along(size_b, log_b)},
                          {int64_t{1} << log_a, int64_t{1} << log_b});
  }
};

/// A thread moves packets of `pack` elements, 4 bytes for small types: from rows of the source (along b) into
/// shared memory, and then from there to rows of the target (along a).
template <int pack, class T>
__global__ void __launch_bounds__(Tiles::threads)
    transpose_kernel(const __grid_constant__ Tiles tiles, const T* source, T* target) {
  constexpr int packets = Tiles::numel / (Tiles::threads * pack), step = Tiles::threads * pack;
  using Moved = Packet<T, pack>;
  __shared__ alignas(16) T tile[Tiles::numel + Tiles::longest * pack];  // element (a, b) at a * pitch + b
  const int log_a = tiles.log_a, log_b = tiles.log_b, pitch = (1 << log_b) + pack;
  const int first = static_cast<int>(threadIdx.x) * pack;

  const auto at = tiles.layout.offsets(blockIdx.x);
  const auto left_a = static_cast<int>(std::min<int64_t>(tiles.size_a - at[2], 1 << log_a));
  const auto left_b = static_cast<int>(std::min<int64_t>(tiles.size_b - at[3], 1 << log_b));
  {
    const int b = first & ((1 << log_b) - 1), first_a = first >> log_b, step_a = step >> log_b;
    const int end_a = b < left_b ? left_a : 0;
    const T* from = source + at[1] + first_a * tiles.source_stride + b;
    Moved held[packets];
#pragma unroll
    for (int i = 0; i < packets; ++i, from += step_a * tiles.source_stride)
      if (first_a + i * step_a < end_a) held[i] = *reinterpret_cast<const Moved*>(from);
#pragma unroll
    for (int i = 0; i < packets; ++i)
      *reinterpret_cast<Moved*>(tile + (first_a + i * step_a) * pitch + b) = held[i];
  }
  __syncthreads();
  const int a = first & ((1 << log_a) - 1), first_b = first >> log_a, step_b = step >> log_a;
  const int end_b = a < left_a ? left_b : 0;
  T* to = target + at[0] + first_b * tiles.target_stride + a;
  Moved held[packets];
#pragma unroll
  for (int i = 0; i < packets; ++i) {
#pragma unroll
    for (int j = 0; j < pack; ++j) held[i].lane[j] = tile[(a + j) * pitch + first_b + i * step_b];
  }
#pragma unroll
  for (int i = 0; i < packets; ++i, to += step_b * tiles.target_stride)
    if (first_b + i * step_b < end_b) *reinterpret_cast<Moved*>(to) = held[i];
}

/// Copies by tiles and returns true, if tiles suit.
template <class T>
bool transpose(const Tensor& source, const Tensor& target) {
  const auto copy = detail::strided_layout(target, source);
  const auto dense_dimension = [&](int k) {
    return static_cast<int>(std::find(copy.strides[k], copy.strides[k] + copy.rank, 1) - copy.strides[k]);
  };
  const int a = dense_dimension(0), b = dense_dimension(1);
  if (copy.numel == 0 || a == b || a == copy.rank || b == copy.rank) return false;
  constexpr int64_t least = 8;  // elements along a and along b, for rows of whole sectors
  if (copy.sizes[a] < least || copy.sizes[b] < least || copy.sizes[a] * copy.sizes[b] < Tiles::numel / 4 ||
      copy.strides[0][b] < least || copy.strides[1][a] < least)
    return false;
  const Tiles tiles(copy, a, b);
  if (tiles.layout.numel > INT_MAX) return false;

  constexpr int pack = std::max<int>(1, 4 / sizeof(T));
  const T* const from = detail::ptr<T>(source);
  T* const to = detail::mutable_ptr<T>(target);
  bool packs = is_packet_aligned<T, pack>(from) && is_packet_aligned<T, pack>(to) &&
               copy.sizes[a] % pack == 0 && copy.sizes[b] % pack == 0;
  for (int d = 0; d < copy.rank; ++d)
    packs = packs && (d == a || copy.strides[0][d] % pack == 0) && (d == b || copy.strides[1][d] % pack == 0);
  const Launch launch("copy", target, {&source});
  const auto kernel = packs ? transpose_kernel<pack, T> : transpose_kernel<1, T>;
  kernel<<<static_cast<unsigned>(tiles.layout.numel), Tiles::threads, 0, launch.stream()>>>(tiles, from, to);
  launch.check();
  return true;
}

// ---- Padding ----------------------------------------------------------------------------------------------

/// Index j of a dimension of y holds element (j + shift) / step - skipped of x, if step divides j + shift and
/// x has that element. `size` and `stride` are those of x. `is_row` is 1 for the innermost dimension
/// and 0 for others.
struct PadDimension {
  int shift, skipped, step, size, stride, y_stride, is_row;
};

/// Writes y row by row, as MapRows does.
template <class T>
struct Pad {
  static constexpr int most = 8;
  RowShares<1, most> rows;  // of y
  PadDimension dimensions[max_rank];
  T* y;
  const T* x;
  T value;
  int y_columns, x_columns, x_step;  // between the elements of a thread; x_step is x_columns in memory

  __device__ void operator()(int64_t thread) const {
    int to_at = 0, from_at = 0, lane = 0, column = 0, outside = 0;  // the column is that of x
    rows.threads.unravel(thread, [&](int d, int64_t j64) {
      const PadDimension& dimension = dimensions[d];
      const int j = static_cast<int>(j64);
      int index = j + dimension.shift;
      if (dimension.step !=
          1) {  // lanes are a multiple of the step: a thread's elements are all in x, or none
        const int quotient = index / dimension.step;
        outside |= quotient * dimension.step - index;
        index = quotient;
      }
      index -= dimension.skipped;
      to_at += j * dimension.y_stride;
      from_at += index * dimension.stride;
      lane += j * dimension.is_row;
      column += index * dimension.is_row;
      if (static_cast<unsigned>(index) >= static_cast<unsigned>(dimension.size)) outside |= !dimension.is_row;
    });
    const T* const from = x + from_at;
    T* const to = y + to_at;
    const int count = rows.count(lane);
    const unsigned x_size = outside ? 0 : static_cast<unsigned>(dimensions[0].size);
    T elements[most];
#pragma unroll
    for (int u = 0; u < most; ++u) {
      elements[u] = value;
      if (static_cast<unsigned>(column + u * x_columns) < x_size) elements[u] = from[u * x_step];
    }
#pragma unroll
    for (int u = 0; u < most; ++u)
      if (u < count) to[u * y_columns] = elements[u];
  }
};

}  // namespace

// ---- The entries of ops/kernels.h -------------------------------------------------------------------------

void copy(const Tensor& source, const Tensor& target) {
  if (source.dtype() != target.dtype()) {
    const bool done = visit_storage(source.dtype(), [&]<class From>(From) {
      return visit_storage(target.dtype(), [&]<class To>(To) {
        if constexpr (!std::is_same_v<From, To> && (is_floating_v<From> || is_floating_v<To>))
          return map("copy", Convert<To, From>{}, Out<To>{target}, In<From>{source});
        else
          return false;
      });
    });
    if (done) return;
    const ConvertRows rows{detail::strided_layout(target, source), source.impl()->data(),
                           target.impl()->data(), source.dtype(), target.dtype()};
    for_each_index(Launch("copy", target, {&source}), rows.rows.threads.numel, rows);
  } else if (source.numel() > 0 && detail::strided_layout(target, source).is_dense()) {
    const Launch launch("copy", target, {&source});
    const auto bytes = static_cast<size_t>(target.numel() * size_of(target.dtype()));
    launch.check(cudaMemcpyAsync(target.impl()->data(), source.impl()->data(), bytes,
                                 cudaMemcpyDeviceToDevice, launch.stream()));
  } else {
    visit_storage(source.dtype(), [&]<class T>(T) {
      using Bits = bits_t<T>;
      if (!transpose<Bits>(source, target)) map("copy", Same{}, Out<Bits>{target}, In<Bits>{source});
    });
  }
}

void fill(const Tensor& target, Scalar value) {
  visit_storage(target.dtype(), [&]<class T>(T) {
    using Bits = bits_t<T>;
    map("fill", Constant<Bits>{std::bit_cast<Bits>(detail::element<T>(value))}, Out<Bits>{target});
  });
}

void pad(const Tensor& x, const Shape& before, const Shape& step, Scalar value, const Tensor& y) {
  if (x.numel() == 0) return fill(y, value);
  if (x.numel() == y.numel()) return copy(x, y);
  int64_t farthest = y.numel();  // the kernel computes in int
  for (int64_t d = 0; d < x.rank(); ++d) farthest += x.strides()[d] * y.shape()[d];
  if (farthest > INT_MAX / 2) {
    fill(y, value);
    return copy(x, detail::inside(y, before, step, x.shape()));
  }
  detail::StridedLayout<1> layout;  // of y, with neighbours joined where x and y can walk them as one
  PadDimension dimensions[max_rank];
  for (int64_t d = y.rank() - 1; d >= 0; --d) {
    const auto size = static_cast<int>(y.shape()[d]), size_of_x = static_cast<int>(x.shape()[d]);
    const auto stride = static_cast<int>(x.strides()[d]), first = static_cast<int>(before[d]);
    const int apart = size_of_x == 1 ? 1 : static_cast<int>(step[d]), skipped = (first + apart - 1) / apart;
    if (size == 1) continue;
    if (const int last = layout.rank - 1; last >= 0 && apart == 1) {
      PadDimension& inner = dimensions[last];
      const auto width = static_cast<int>(layout.sizes[last]);
      if (inner.size == width && (size_of_x == 1 || stride == int64_t{inner.stride} * width)) {
        inner.skipped = first * width, inner.size = size_of_x * width;
        layout.sizes[last] *= size;
        continue;
      }
    }
    const auto y_stride = static_cast<int>(y.strides()[d]);
    dimensions[layout.rank] = {skipped * apart - first, skipped, apart, size_of_x, stride, y_stride,
                               layout.rank == 0};
    layout.sizes[layout.rank] = size;
    layout.strides[0][layout.rank] = y_stride;
    ++layout.rank;
  }
  layout.numel = y.numel();
  visit_storage(y.dtype(), [&]<class T>(T) {
    using Bits = bits_t<T>;
    Pad<Bits> pad{.rows = {layout, dimensions[0].step},
                  .y = detail::mutable_ptr<Bits>(y),
                  .x = detail::ptr<Bits>(x),
                  .value = std::bit_cast<Bits>(detail::element<T>(value))};
    std::copy_n(dimensions, layout.rank, pad.dimensions);
    pad.y_columns = static_cast<int>(pad.rows.lanes);
    pad.x_columns = pad.y_columns / dimensions[0].step;
    pad.x_step = pad.x_columns * dimensions[0].stride;
    for_each_index(Launch("pad", y, {&x}), pad.rows.threads.numel, pad);
  });
}

}  // namespace vox::cuda
