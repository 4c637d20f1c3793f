#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <voxgrad/cuda/runtime/launch.h>
#include <voxgrad/ops/layout.h>
#include <voxgrad/cuda/for_each_index.cuh>
#include <voxgrad/cuda/packet.cuh>

// map(): y = f(x...), element by element, for any number of inputs, of any types and strides. Memory
// bandwidth is the limit: each byte is read and written once. f is a function of the inputs' opmath_t, which
// is float for 16-bit types; its result is converted to the type of y.
//
// Each op has kernels of two kinds, which call f on the same numbers; if f is `only_dense`, the first kind.
//
// Map moves packets of consecutive elements, with loads and stores of 16 bytes. That needs rows of whole
// packets: along the innermost dimension every operand is dense or repeats one element, and the rows begin at
// multiples of 16 bytes. So dense tensors, broadcast operands and most slices of volumes qualify. Outputs of
// 8 bytes have kernels of this kind for dense tensors only: two loads of a warp fill the same sectors of
// memory.
//
// MapRows moves single elements. A thread takes several of one row of the innermost dimension, so that it
// works out the offsets of the other dimensions once. Neighbouring threads take neighbouring elements.
//
// If f is OneOf many functions, each function has a kernel of its own for dense tensors. In other layouts
// memory is slower, and one kernel of MapRows serves all functions: it takes the function's number at run
// time. That saves most of the time that their compilation would take.

namespace vox::cuda {

/// A function chosen at run time. Ops is the family:
///
///   Op, count         the functions' numbers are those of type Op below count
///   has(op)           whether the family has the function
///   apply<op>(p, q, x...)    the function; p and q, of the type Number, are the same for all elements
///   broadcasts        whether each function has its own kernel for packets, too: operands are often
///   broadcast
template <class Family>
struct OneOf {
  using Ops = Family;
  using Op = typename Ops::Op;
  using T = typename Ops::Number;
  Op op;
  T p, q;

  OneOf(Op which, Scalar first, Scalar second)
      : op(which), p(detail::element<T>(first)), q(detail::element<T>(second)) {
    check<DTypeError>(fix([](const auto&) {}), "elementwise: this op has no kernel for integers");
  }

  template <class... X>
  __device__ T operator()(X... x) const {
    T y{};
    find([&]<Op which>() { return op == which && (y = Ops::template apply<which>(p, q, x...), true); });
    return y;
  }

  /// The function alone.
  template <Op which>
  struct Fixed {
    T p, q;
    template <class... X>
    __device__ T operator()(X... x) const {
      return Ops::template apply<which>(p, q, x...);
    }
  };
  /// Calls use() with it.
  template <class Use>
  bool fix(Use use) const {
    return find([&]<Op which>() { return op == which && (use(Fixed<which>{p, q}), true); });
  }

 private:
  /// Calls f for one function after the other, until it returns true.
  template <class F>
  static constexpr bool find(const F& f) {
    return find(f, std::make_integer_sequence<int, Ops::count>{});
  }
  template <class F, int... i>
  static constexpr bool find(const F& f, std::integer_sequence<int, i...>) {
    return (try_one<static_cast<Op>(i)>(f) || ...);
  }
  template <Op which, class F>
  static constexpr bool try_one(const F& f) {
    if constexpr (Ops::has(which))
      return f.template operator()<which>();
    else
      return false;
  }
};

template <class F>
inline constexpr bool is_one_of = requires {
  typename F::Ops;
};
/// Whether each function has a kernel for packets.
template <class F>
constexpr bool moves_packets() {
  if constexpr (is_one_of<F>)
    return F::Ops::broadcasts;
  else
    return true;
}

/// Whether f has kernels for dense tensors alone: F::only_dense, if it has that constant.
template <class F>
constexpr bool only_dense() {
  if constexpr (requires { F::only_dense; })
    return F::only_dense;
  else
    return false;
}

/// An input as kernels read it: memory, or a number passed by value.
template <class T>
struct Operand {
  const T* data;  // null: use the number
  opmath_t<T> number;

  /// n elements from data[at] on, which follow each other (step 1) or are all the same (step 0).
  template <int n>
  __device__ Packet<opmath_t<T>, n> load(int64_t at, int64_t step) const {
    Packet<opmath_t<T>, n> result;
    if (data && (n == 1 || step == 1)) {
      const auto memory = *reinterpret_cast<const Packet<T, n>*>(data + at);
#pragma unroll
      for (int i = 0; i < n; ++i) result.lane[i] = opmath_t<T>(memory.lane[i]);
    } else {
      const opmath_t<T> repeated = number_of(data ? data[at] : T{});
#pragma unroll
      for (int i = 0; i < n; ++i) result.lane[i] = repeated;
    }
    return result;
  }
  __device__ opmath_t<T> number_of(T memory) const { return data ? opmath_t<T>(memory) : number; }
};

/// The tensors of a map, with the types of their elements.
template <class T>
struct In {
  const Tensor& tensor;
};
template <class T>
struct Out {
  const Tensor& tensor;
};

/// A tensor on another device than the output is a number operand (ops/kernels.h). Its dtype may be T or
/// opmath_t<T>.
template <class T>
Operand<T> operand(const In<T>& x, const Tensor& y) {
  const void* data = x.tensor.impl()->data();
  if (x.tensor.device() == y.device()) return {static_cast<const T*>(data), opmath_t<T>{}};
  if (is_16_bit_v<T> && x.tensor.dtype() == f32) return {nullptr, *static_cast<const opmath_t<T>*>(data)};
  return {nullptr, *static_cast<const T*>(data)};
}
/// The tensor for Launch to track; null for a number.
inline const Tensor* in_memory(const Tensor& x, const Tensor& y) {
  return x.device() == y.device() ? &x : nullptr;
}

template <int k, class T>
struct Input {
  Operand<T> x;
};

/// Packets of `size` elements that a thread of Map computes, and elements that one of MapRows does: enough
/// for about 32 bytes of loads in flight per thread, with registers for half of the threads that fit or more.
template <int size, class... X>
inline constexpr int packets_per_thread = sizeof...(X) <= 1 && size <= 4 ? 2 : 1;
template <class... X>
inline constexpr int elements_per_thread = sizeof...(X) <= 1 ? 8 : 4;

/// Each warp computes 32 * packets_per_thread packets in a row, of `size` elements. If a dense tensor ends
/// with less, the threads at its end compute their elements one by one. `dense` says that all operands are.
template <int size, bool dense, class F, class Y, class Operands, class... X>
struct Map;
template <int size, bool dense, class F, class Y, int... k, class... X>
struct Map<size, dense, F, Y, std::integer_sequence<int, k...>, X...> : Input<k, X>... {
  static constexpr int packets = packets_per_thread<size, X...>, apart = 32 * size;
  using Layout = detail::StridedLayout<1 + sizeof...(X)>;
  using Offsets = detail::Offsets<1 + sizeof...(X)>;
  Layout layout;
  Y* y;
  F f;

  Map(const Layout& l, Y* out, F function, const Operand<X>&... x)
      : Input<k, X>{x}..., layout(l), y(out), f(function) {}

  int64_t threads() const {
    constexpr int64_t warp_elements = apart * packets;
    return 32 * (layout.numel / warp_elements + (layout.numel % warp_elements != 0));
  }

  __device__ void operator()(int64_t thread) const {
    const int64_t first = thread / 32 * (apart * packets) + thread % 32 * size;
    if (first + (apart * (packets - 1) + size) <= layout.numel) {
      compute<size, packets>(first);
    } else {
      for (int64_t begin = first; begin < layout.numel; begin += apart)
        for (int64_t i = begin; i < begin + size && i < layout.numel; ++i) compute<1, 1>(i);
    }
  }

 private:
  template <int n, int count>
  __device__ void compute(int64_t i) const {
    Offsets at[count];
#pragma unroll
    for (int u = 0; u < count; ++u) {
      if constexpr (dense)
        for (int64_t& offset : at[u].at) offset = i + u * apart;
      else
        at[u] = layout.offsets(i + u * apart);
    }
    store<n, count>(at, load<n, count, k>(at, static_cast<const Input<k, X>&>(*this).x)...);
  }
  /// Dense operands are converted when they are used, so that the loads do not wait for each other.
  template <class T, int n, int count>
  struct Loaded {
    Packet<std::conditional_t<dense, T, opmath_t<T>>, n> packet[count];
  };
  template <int n, int count, int operand, class T>
  __device__ Loaded<T, n, count> load(const Offsets* at, const Operand<T>& x) const {
    Loaded<T, n, count> result;
#pragma unroll
    for (int u = 0; u < count; ++u) {
      if constexpr (dense)
        result.packet[u] = *reinterpret_cast<const Packet<T, n>*>(x.data + at[u][1 + operand]);
      else
        result.packet[u] = x.template load<n>(at[u][1 + operand], layout.strides[1 + operand][0]);
    }
    return result;
  }
  template <int n, int count>
  __device__ void store(const Offsets* at, const Loaded<X, n, count>&... x) const {
#pragma unroll
    for (int u = 0; u < count; ++u) {
      Packet<Y, n> out;
#pragma unroll
      for (int i = 0; i < n; ++i) out.lane[i] = Y(f(opmath_t<X>(x.packet[u].lane[i])...));
      *reinterpret_cast<Packet<Y, n>*>(y + at[u][0]) = out;
    }
  }
};

/// The rows of a layout (its innermost dimension), shared among threads: `lanes` threads take a row. Each
/// takes up to `most` elements: lane, lane + lanes, lane + 2 lanes, ...
template <int N, int most>
struct RowShares {
  detail::StridedLayout<N + 1> threads;  // operand N: the lane
  int64_t steps[N];                      // in memory, between the elements of a thread
  int64_t lanes;                         // a multiple of `unit`
  int64_t longer;                        // this many lanes take one element more
  int each;

  RowShares(const detail::StridedLayout<N>& layout, int64_t unit = 1) {
    const int64_t length = layout.rank > 0 ? layout.sizes[0] : layout.numel;
    const auto quotient_up = [](int64_t n, int64_t by) { return n / by + (n % by != 0); };
    // 16 neighbours at least, or the row: they fill sectors of memory (32 bytes).
    const int64_t wanted = std::max(std::min<int64_t>(16, length), quotient_up(length, most));
    lanes = quotient_up(wanted, unit) * unit;
    threads = layout.coarser({0}, {lanes}, {1});
    for (int k = 0; k < N; ++k) steps[k] = lanes * layout.strides[k][0];
    each = static_cast<int>(length / std::max<int64_t>(lanes, 1));
    longer = length - each * lanes;
  }
  __device__ int count(int64_t lane) const { return each + (lane < longer); }
};

template <class F, class Y, class Operands, class... X>
struct MapRows;
template <class F, class Y, int... k, class... X>
struct MapRows<F, Y, std::integer_sequence<int, k...>, X...> : Input<k, X>... {
  static constexpr int most = elements_per_thread<X...>;
  RowShares<1 + sizeof...(X), most> rows;
  Y* y;
  F f;

  MapRows(const detail::StridedLayout<1 + sizeof...(X)>& layout, Y* out, F function, const Operand<X>&... x)
      : Input<k, X>{x}..., rows(layout), y(out), f(function) {}

  int64_t threads() const { return rows.threads.numel; }

  __device__ void operator()(int64_t thread) const {
    const auto at = rows.threads.offsets(thread);
    const int count = rows.count(at[sizeof...(X) + 1]);
    store(y + at[0], count,
          fetch(static_cast<const Input<k, X>&>(*this).x, at[1 + k], rows.steps[1 + k], count)...);
  }

 private:
  template <class T>
  __device__ Packet<T, most> fetch(const Operand<T>& x, int64_t at, int64_t step, int count) const {
    Packet<T, most> memory;
    if (!x.data) count = 0;
    const T* from = x.data + at;
#pragma unroll
    for (int u = 0; u < most; ++u, from += step)
      if (u < count) memory.lane[u] = *from;
    return memory;
  }
  __device__ void store(Y* to, int count, const Packet<X, most>&... memory) const {
    // If f is many functions, their code should be there once. Then `memory` is in the first-level cache.
    constexpr int unrolled = is_one_of<F> ? 1 : most;
#pragma unroll unrolled
    for (int u = 0; u < most; ++u, to += rows.steps[0])
      if (u < count) *to = Y(f(static_cast<const Input<k, X>&>(*this).x.number_of(memory.lane[u])...));
  }
};

/// Whether operand k of the layout can be moved in packets of `size` elements.
template <int size, int N, class T>
bool moves_in_packets(const detail::StridedLayout<N>& layout, int k, const T* data) {
  const int64_t* strides = layout.strides[k];
  if (!data || (k > 0 && strides[0] == 0)) return true;  // a number, or an input that repeats one element
  bool moves = strides[0] == 1 && is_packet_aligned<T, size>(data);
  for (int d = 1; d < layout.rank; ++d) moves = moves && strides[d] % size == 0;
  return moves;
}

/// y = f(x...). Returns false, and launches nothing, if f has no kernel for the layout.
template <class F, class Y, class... X>
bool map(const char* op, F f, Out<Y> y, In<X>... x) {
  // As many elements as the smallest type has in 16 bytes, but no more than 8, to spare registers.
  constexpr int size = std::min<int>(8, 16 / std::min({sizeof(Y), sizeof(X)...}));
  using Operands = std::make_integer_sequence<int, sizeof...(X)>;
  const auto layout = detail::strided_layout(y.tensor, x.tensor...);
  Y* const out = static_cast<Y*>(y.tensor.impl()->data());
  [[maybe_unused]] int k = 0;
  const bool in_packets = (layout.rank <= 1 || layout.sizes[0] % size == 0) &&
                          moves_in_packets<size>(layout, 0, out) &&
                          (moves_in_packets<size>(layout, ++k, operand(x, y.tensor).data) && ...);
  const bool dense = in_packets && layout.is_dense() && (operand(x, y.tensor).data && ...);
  const auto run = [&](const auto& threads) {
    for_each_index(Launch(op, y.tensor, {in_memory(x.tensor, y.tensor)...}), threads.threads(), threads);
  };
  const auto move_packets = [&]<bool is_dense, class G>(std::bool_constant<is_dense>, const G& g) {
    run(Map<size, is_dense, G, Y, Operands, X...>(layout, out, g, operand(x, y.tensor)...));
  };
  const auto call_alone = [&](auto is_dense) {
    if constexpr (is_one_of<F>)
      f.fix([&](const auto& g) { move_packets(is_dense, g); });
    else
      move_packets(is_dense, f);
    return true;
  };
  if (dense) return call_alone(std::true_type());
  if constexpr (only_dense<F>()) {
    return false;
  } else {
    if constexpr (moves_packets<F>() && sizeof(Y) < 8) {
      if (in_packets) return call_alone(std::false_type());
    }
    run(MapRows<F, Y, Operands, X...>(layout, out, f, operand(x, y.tensor)...));
    return true;
  }
}

}  // namespace vox::cuda
